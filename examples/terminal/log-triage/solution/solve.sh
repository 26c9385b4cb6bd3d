#!/bin/sh
set -e
cd /app/logs
first=$(grep -h 'certificate expired' billing.txt | sort | head -n 1)
ids=$(grep -h ' 502$' gateway.txt | sed 's/.*request=\([^ ]*\).*/\1/' | sort)
{
    printf '{"service": "%s", "cause": "certificate", ' "$(echo "$first" | cut -d ' ' -f 2)"
    printf '"first_error": "%s", "failed_requests": [' "$(echo "$first" | cut -d ' ' -f 1)"
    echo "$ids" | sed 's/.*/"&"/' | paste -s -d , -
    printf ']}'
} > ../incident.json
