#!/bin/sh
# The batch tour: 40 work items and one that needs them all. One is denied, the process is killed in
# the middle, the same command continues, the cause is fixed, and one item is undone. Each step checks
# its result.
#
#     sh examples/tours/batch/tour.sh [FOLDER]
#
# FOLDER must be new or empty; without it, the tour works in a temporary folder and removes it.
set -eu

here=$(cd "$(dirname "$0")" && pwd -P)
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    folder=$(cd "$1" && pwd -P)
else
    folder=$(cd "$(mktemp -d)" && pwd -P)
    trap 'cd / && rm -rf "$folder"' EXIT
fi

step() { printf '\n== %s\n' "$1"; }
fail() { printf 'tour: %s\n' "$1" >&2; exit 1; }
has() { case $1 in *"$2"*) ;; *) fail "expected '$2' in: $1" ;; esac; }
counted() { ls counts | wc -l; }

# Runs work.yaml, and requires the exit code $1. What it said is then in $said.
work() {
    code=0
    said=$(actum work work.yaml 2>&1) || code=$?
    [ "$code" -eq "$1" ] || fail "expected exit code $1, got $code: $said"
}

step 'A project with 40 texts, and a work file with an item for each'
actum init "$folder/project" --runner local > "$folder/init.txt"
cd "$folder/project"
cp -r "$here/agents" "$here/count.py" "$here/total.py" .
mkdir texts counts
sh "$here/write.sh" > work.yaml
echo 'this text asks for a second file' > texts/17.txt
grep -c 'id: text-' work.yaml

step 'Killed in the middle'
actum work work.yaml > "$folder/killed.txt" 2>&1 &
worker=$!
while [ "$(counted)" -lt 5 ]; do
    kill -0 "$worker" 2>/dev/null || fail "it ended by itself: $(cat "$folder/killed.txt")"
    sleep 0.02
done
kill -9 "$worker"
wait "$worker" 2>/dev/null || true

step 'The same command continues: no committed item is repeated, one is denied, one blocked'
work 3
printf '%s\n' "$said" | grep -e '^Continuing' -e '^⛔' -e '^⏸' -e 'committed'
has "$said" '(interrupted)'
has "$said" 'text-17 denied'
has "$said" 'total blocked: waits for text-17 (denied)'
has "$said" '39 of 41 work items committed, 1 blocked.'

step 'The cause is fixed, and the rest is done'
echo 'one two three' > texts/17.txt
work 0
printf '%s\n' "$said" | grep -e '^Continuing' -e 'committed'
has "$said" '41 of 41 work items committed, 0 blocked.'
[ "$(counted)" -eq 40 ] || fail 'a count is missing'

step 'One run, one receipt for each step, every item committed once'
run=$(actum --json runs list | python3 -I -c 'import json, sys; print(json.load(sys.stdin)["runs"][0]["runId"])')
actum --json runs status "$run" | python3 -I -c '
import collections, json, sys
run = json.load(sys.stdin)
done = collections.Counter(s["itemId"] for s in run["steps"] if s["status"] == "success")
assert run["status"] == "complete" and len(done) == 41 and set(done.values()) == {1}, (run["status"], done)
print(len(run["steps"]), "steps,", len(done), "items committed, each once")'
actum verify --run "$run" | tail -1

step 'Undo: refused while another item rests on it, then with it'
receipt=$(actum --json runs status "$run" | python3 -I -c '
import json, sys
steps = json.load(sys.stdin)["steps"]
print(next(s["receiptId"] for s in steps if s["itemId"] == "text-03"))')
refused=$(actum undo "$receipt" 2>&1) && fail 'the undo was not refused'
has "$refused" 'total (depends on text-03)'
actum undo "$receipt" --with-dependents
[ ! -e total.txt ] && [ ! -e counts/03.txt ] && [ -e counts/04.txt ] || fail 'not undone'

printf '\nThe batch tour is complete.\n'
