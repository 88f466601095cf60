"""An upgrade from an earlier commit to this one, on a local cluster, under load: `make upgrade-from REF=...`."""
