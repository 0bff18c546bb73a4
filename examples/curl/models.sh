#!/bin/sh
# What a server has: its models, and how it is.
#   MILLET_URL=http://127.0.0.1:8080 MILLET_API_KEY=KEY examples/curl/models.sh
set -eu
url=${MILLET_URL:-http://127.0.0.1:8080}
curl --fail-with-body -sS "$url/v1/models" -H "Authorization: Bearer ${MILLET_API_KEY:-none}"
curl --fail-with-body -sS "$url/health"
