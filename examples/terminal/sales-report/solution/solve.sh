#!/bin/sh
exec python3 /solution/report.py
