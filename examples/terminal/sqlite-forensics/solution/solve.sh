#!/bin/sh
exec python3 /solution/find.py
