#!/bin/sh
# The platform tour: a tool of your own, an exception that ends when the tool changes, a new signing
# key, and receipts that openssl alone verifies. Each step prints what it does and checks the result.
#
#     sh examples/tours/platform/tour.sh [FOLDER]
#
# FOLDER must be new or empty; without it, the tour works in a temporary folder and removes it.
set -eu

if [ $# -gt 0 ]; then
    mkdir -p "$1"
    folder=$(cd "$1" && pwd -P)
else
    folder=$(cd "$(mktemp -d)" && pwd -P)
    trap 'cd / && rm -rf "$folder"' EXIT
fi
exports=$folder/exports
mkdir "$exports" "$folder/audit"

step() { printf '\n== %s\n' "$1"; }
fail() { printf 'tour: %s\n' "$1" >&2; exit 1; }
field() { python3 -I -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# Runs publish.yaml and requires the outcome $1 and, in a refusal, the text $2. The receipt's id is
# then in $receipt.
publish() {
    answer=$(actum --json exec -f publish.yaml) || true
    outcome=$(printf '%s' "$answer" | field outcome)
    receipt=$(printf '%s' "$answer" | field receipt_id)
    [ "$outcome" = "$1" ] || fail "expected $1, got $answer"
    case $answer in *"${2:-}"*) ;; *) fail "expected '$2' in $answer" ;; esac
    printf '%s: %s\n' "$outcome" "${2:-receipt $receipt}"
}

step 'A tool of your own: proposed, refused, approved'
actum init "$folder/project" --runner local > "$folder/init.txt"
cd "$folder/project"
echo 'all is well' > report.txt
actum new tool publish > "$folder/new.txt"
sed -i -e 's|commands: \[wc\]|commands: [cp]|' \
    -e 's|data_access: read |data_access: write |' \
    -e "s|filesystem: \[\".\"\]|filesystem: [\".\", \"$exports\"]|" \
    -e "s|write: \[\]|write: [\"$exports\"]|" tools/publish/tool.yaml
sed -i -e 's|executable: wc |executable: cp |' \
    -e "s|base_args: .*|base_args: [\"--target-directory=$exports\"]|" tools/publish/adapters/publish.yaml
actum tools propose tools/publish
actum exec publish -p file=report.txt --set 'sandbox.filesystem.level="elevated"' \
    --set 'sandbox.filesystem.read=["."]' --set "sandbox.filesystem.write=[\"$exports\"]" --save publish.yaml
publish REJECTED TOOL_NOT_APPROVED
actum tools approve publish --by ada --evidence REVIEW-1

step 'An exception: refused, granted for five uses and 30 days, used'
publish REJECTED APPROVAL_REQUIRED
actum approvals grant publish --path "$exports" --uses 5 --until 30d --by ada --why 'nightly report'
publish SUCCEEDED
[ "$(cat "$exports/report.txt")" = 'all is well' ] || fail 'the report was not copied'
actum approvals list

step 'The tool changes, and the exception ends'
sed -i 's|base_args: \[|base_args: ["--backup=numbered", |' tools/publish/adapters/publish.yaml
publish REJECTED TOOL_CHANGED
actum tools approve publish --by ada --evidence REVIEW-2
publish REJECTED "the tool's folder has changed since"
granted=$(actum --json approvals grant publish --path "$exports" --uses 5 --until 30d \
    --by ada --why 'with backups' | field approval_id)
publish SUCCEEDED
first=$receipt

step 'A new key: what the old one signed stays valid'
actum keys show --pem > "$folder/audit/first.pub"
actum keys rotate
actum keys show --pem > "$folder/audit/second.pub"
publish SUCCEEDED
second=$receipt
actum verify "$first" | tail -n 1
actum verify --all | tail -n 1

step 'Others check both receipts with openssl, without Actum'
for id in "$first" "$second"; do actum receipts show "$id" > "$folder/shown.txt" 2>&1; done
cp ".actum/receipts/$first.json" "$folder/audit/first.json"
cp ".actum/receipts/$second.json" "$folder/audit/second.json"
cd "$folder/audit"
check() { # RECEIPT KEY
    sed 's/.*"payload":"\([^"]*\)".*/\1/' "$1.json" | base64 -d > "$1.statement"
    sed 's/.*"sig":"\([^"]*\)".*/\1/' "$1.json" | base64 -d > "$1.signature"
    { printf 'DSSEv1 28 application/vnd.in-toto+json %d ' "$(wc -c < "$1.statement")"; cat "$1.statement"; } > "$1.signed"
    openssl pkeyutl -verify -pubin -inkey "$2" -rawin -in "$1.signed" -sigfile "$1.signature"
}
check first first.pub
check second second.pub
if check second first.pub; then fail 'a receipt of the second key verified with the first'; fi
grep -q '"granted_by":"ada"' second.statement || fail 'the receipt does not name who granted the exception'

step 'The exception is revoked'
cd "$folder/project"
actum approvals revoke "$granted" --by ada --why 'end of the tour'
publish REJECTED 'ada revoked it'
printf '\nThe platform tour is complete.\n'
