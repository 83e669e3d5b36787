#!/usr/bin/env bash
# A tour in a throwaway project: one execution, one undo, one refusal, one receipt, one forgery.
# Exits with an error as soon as a promise is broken.
set -euo pipefail

cd "$(dirname "$0")/.."
actum=$PWD/.venv/bin/actum
[ -e .venv/.ready ] || actum=$PWD/.demo/bin/actum
actum=${ACTUM:-$actum}
place=$(mktemp -d "${TMPDIR:-/tmp}/actum-demo.XXXXXX")
trap 'rm -rf "$place"' EXIT
cd "$place"

step() { printf '\n== %s\n' "$1"; }
broken() { printf 'demo: promise broken: %s\n' "$1" >&2; exit 1; }

# Runs `actum` with these arguments, prints them, and compares the exit code.
expect() {
    local wanted=$1 code=0
    shift
    printf '$ actum' && printf ' %q' "$@" && printf '\n'
    "$actum" "$@" >out.txt 2>&1 </dev/null || code=$?
    cat out.txt
    [ "$code" -eq "$wanted" ] || broken "exit code $code instead of $wanted"
}
shows() { grep -qF -- "$1" out.txt || broken "the answer does not mention: $1"; }

step "What this host can enforce"
expect 0 doctor

step "A project with ready tools"
expect 0 init project --runner local
cd project

step "A program runs in the sandbox; its files come out as yours"
cat >hello.sh <<'SCRIPT'
echo "hello from uid $(id -u)"
echo "a line that was written inside" > note.txt
cat /etc/shadow 2>/dev/null || echo "no /etc/shadow in here"
ls .actum/keys 2>/dev/null || echo "no keys in here either"
SCRIPT
expect 0 exec shell --stdin hello.sh
shows SUCCEEDED
shows "no keys in here either"
[ "$(stat -c %u note.txt)" = "$(id -u)" ] || broken "note.txt belongs to another user"

step "A tool's changes can be shown, and undone"
echo 'rm note.txt; echo oops > oops.txt' >mess.sh
expect 0 exec shell --stdin mess.sh
shows "changes committed: 1 created, 1 deleted"
execution=$(sed -n 's/.*`actum diff \([^`]*\)`.*/\1/p' out.txt)
expect 0 diff "$execution"
shows "+oops"
expect 0 undo "$execution"
{ [ -e note.txt ] && [ ! -e oops.txt ]; } || broken "the undo did not restore everything"

step "A limit is a limit"
echo 'echo patience; sleep 60' >slow.sh
expect 4 exec shell --stdin slow.sh --timeout 1s
shows TIMED_OUT

if command -v rg >/dev/null; then
    step "A search, with a regular expression that no shell ever sees"
    expect 0 exec ripgrep -p 'pattern=written (in|out)side$' -p path=note.txt
    shows '"type":"match"'
fi

step "A forbidden call does not run: every violation at once, and on record"
expect 3 exec ripgrep -p pattern=root -p path=../../../etc/passwd -- '$(cat /etc/passwd)'
shows IV-02
shows IV-03

step "Every outcome has a signed receipt"
expect 0 receipts list
shows REJECTED
expect 0 verify
shows Verified

step "Verification finds a forged receipt"
receipt=$(ls -t .actum/receipts/*.json | head -n 1)
sed -i 's/"payload":"./"payload":"X/' "$receipt"
expect 1 verify "$receipt"
shows "NOT verified"

printf '\nThe demo went as promised.\n'
