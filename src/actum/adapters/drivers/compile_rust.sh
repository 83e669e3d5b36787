# Compiles a Rust crate and its driver, offline and without a registry. $1: the crate's name.
set -eu
source=/run/actum/source/lib.rs
[ -e "$source" ] || source=/run/actum/source/src/lib.rs
cd /tmp
compile="rustc --edition 2021 -O -C debuginfo=0 -L /tmp"
$compile --crate-type rlib --crate-name actum_json -o /tmp/libactum_json.rlib /run/actum/json.rs
$compile --crate-type rlib --crate-name "$1" --extern actum_json=/tmp/libactum_json.rlib \
    -o "/tmp/lib$1.rlib" "$source"
$compile --crate-type bin --crate-name driver --extern actum_json=/tmp/libactum_json.rlib \
    --extern "$1=/tmp/lib$1.rlib" -C strip=symbols -o /tmp/program /run/actum/main.rs
cp /tmp/program "${ACTUM_ARTIFACTS:-/artifacts}/program"
printf '{"value": null}'
