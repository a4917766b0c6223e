#!/bin/sh
# rustc for this workspace. A crate's unit tests are compiled without optimisation, which takes a quarter of the time in the
# largest crate; what they and the daemon link stays as the profile says. Cargo has no profile that tells the two apart.
# Set in .cargo/config.toml.
for argument; do
    if [ "$argument" = --test ]; then exec "$@" -C opt-level=0; fi
done
exec "$@"
