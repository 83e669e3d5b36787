#!/bin/sh
# A tool gets a key for one execution. Usage: examples/secrets/run.sh NEW_FOLDER
set -eu
: "${1:?name a folder to make: examples/secrets/run.sh NEW_FOLDER}"
here=$(cd "$(dirname "$0")" && pwd)
actum init "$1" --runner local > /dev/null
cd "$1"

# The source of the key. This file never holds a value.
printf '\n[secrets]\nSIGNING_KEY = { env = "MY_SIGNING_KEY" }\n' >> actum.toml
actum config approve --by ada --why "the key of the signing tool" > /dev/null

# The tool names the secret, and a person approves the tool with its current contents.
cp -r "$here/sign" tools/sign
actum tools approve sign --by ada --evidence "read it, 20 lines" > /dev/null

echo "1. the contract does not request the key: the tool has none"
printf hello | actum exec sign --stdin - --exit-code tool 2> /dev/null || echo "   exit code $?"

echo "2. it requests the key, and there is none: refused before anything starts"
printf hello | actum exec sign --stdin - --secret SIGNING_KEY=fd 2> /dev/null || echo "   exit code $?"

export MY_SIGNING_KEY=correct-horse-battery-staple
echo "3. it requests the key, and gets it"
printf hello | actum exec sign --stdin - --secret SIGNING_KEY=fd 2> /dev/null

echo "4. a tool that prints the key prints a redacted text"
printf 'hello, debug' | actum exec sign --stdin - --secret SIGNING_KEY=fd 2> /dev/null
