#!/bin/sh
exec python3 /solution/migrate.py
