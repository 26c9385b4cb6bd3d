#!/bin/sh
set -e
cd /app
git clone -q -b main till.bundle till
cd till
rounding=$(git log --format=%H -S'-(-net' -- price.py | tail -n 1)
leak=$(git log --format=%H -S'TOKEN = "' -- ledger.py | tail -n 1)
token=$(git show "$leak:ledger.py" | sed -n 's/^TOKEN = "\(.*\)"$/\1/p')
before=$(git show "$rounding^:price.py" > /tmp/price.py && cd /tmp && python3 -c 'import price; print(price.gross(1001))')
printf '{"rounding": "%s", "rounding_author": "%s", "leaked": "%s", "leaked_by": "%s", "gross_before": %s}\n' \
    "$rounding" "$(git show -s --format=%an "$rounding")" "$token" "$leak" "$before" > ../answers.json
