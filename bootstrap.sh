#!/bin/sh
# Gets uv, pinned with its hashes in images/uv-requirements.txt, into .uv/; everything else is uv's and Make's work.
# Safe to run again. PYTHON names another Python than python3.
set -eu
cd "$(dirname "$0")"
PYTHON=${PYTHON:-python3}
UV_VERSION=$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' images/uv-requirements.txt)

if [ "$(.uv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" = "$UV_VERSION" ]; then
    exit 0
fi
echo "Installing uv $UV_VERSION into .uv/"
if ! command -v "$PYTHON" >/dev/null || ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$PYTHON" != python3 ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "Error: $PYTHON with its venv module is needed. On Debian: apt-get install python3-venv" >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Error: $("$PYTHON" --version) is too old: Python 3.11 or later is needed. Name one, such as PYTHON=python3.12" >&2
    exit 1
fi
rm -rf .uv
"$PYTHON" -m venv .uv
.uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
    --requirement images/uv-requirements.txt
