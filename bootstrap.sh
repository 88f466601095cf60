#!/bin/sh
# Gets uv, pinned, into .uv/; everything else is uv's and Make's work. Safe to run again.
set -eu
UV_VERSION=0.13.8
cd "$(dirname "$0")"

if [ "$(.uv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" = "$UV_VERSION" ]; then
    exit 0
fi
echo "Installing uv $UV_VERSION into .uv/"
if ! command -v python3 >/dev/null || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "Error: Python 3.11 or later with its venv module is needed. On Debian: apt-get install python3-venv" >&2
        exit 1
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv
fi
rm -rf .uv
python3 -m venv .uv
.uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
