#!/bin/sh
exec python3 /solution/decode.py
