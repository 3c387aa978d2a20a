#!/usr/bin/env bash
# Export what is new, and ship it: ship.sh OUTBOX CLOUD. DATA_DIR is the broker's. A copy that is cut off is made again.
set -euo pipefail
outbox=$1 cloud=$2

barnabas export readings --data-dir "$DATA_DIR" --to "$outbox" --format json \
    --schema 'n BIGINT, temp DOUBLE, at BIGINT'

for folder in "$outbox"/topic=*/partition=*; do
    target=$cloud/${folder#"$outbox"/}
    mkdir -p "$target"
    mapfile -t files < <(find "$folder" -name '[0-9]*.parquet' | sort)
    for number in "${!files[@]}"; do
        name=$(basename "${files[number]}")
        cp "${files[number]}" "$target/.$name.part" && mv "$target/.$name.part" "$target/$name"
        # The newest file stays: its name says how far the export is.
        if ((number + 1 < ${#files[@]})); then rm "${files[number]}"; fi
    done
done
