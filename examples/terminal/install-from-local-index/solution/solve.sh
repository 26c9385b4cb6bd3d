#!/bin/sh
set -e
cd /app
python3 -m pip install --no-index --find-links wheels --target vendor -r requirements.txt
PYTHONPATH=vendor python3 report.py > report.txt
