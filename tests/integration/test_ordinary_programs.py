"""Compilers, interpreters, package managers and databases work in a sandbox as they do outside.

Each script runs in both places and must print the same. A missing program fails its test:
`scripts/debian-packages` installs all of them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hostile.jail import Jail
from security.network.outside import Net, http_server, said

pytestmark = pytest.mark.sandbox

#: Enough for a compiler of Rust or Go.
LIMITS = {
    "sandbox.memory_mb": 2_048,
    "sandbox.cpu_cores": 2,
    "sandbox.processes.max_children": 100,
}

_GCC = """
cat > part.c <<'END'
#include <pthread.h>
static void *twice(void *x) { *(int *)x *= 2; return x; }
int answer(void) {
    int value = 21; pthread_t thread;
    if (pthread_create(&thread, 0, twice, &value)) return -1;
    pthread_join(thread, 0);
    return value;
}
END
cat > main.c <<'END'
#include <stdio.h>
int answer(void);
int main(void) { printf("%d\\n", answer()); return 0; }
END
gcc -O2 -flto -c part.c && ar rcs libpart.a part.o
gcc -O2 -flto -pthread -o main main.c libpart.a
strip main && ./main
gcc -static -O1 -pthread -o fixed main.c part.c && ./fixed
"""

_MAKE = """
printf 'all: one two three\\n\\techo done\\n%%: \\n\\techo $@ > $@\\n' > Makefile
make -s -j3 && cat one two three
"""

_GIT = """
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.test GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.test
export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z HOME=$PWD
export GIT_CONFIG_NOSYSTEM=1
git init -q -b main one && cd one && echo a > a && git add a && git commit -qm first
git checkout -qb side && echo b > b && git add b && git commit -qm second
git checkout -q main && git merge -q --no-ff -m merged side
git gc -q && git fsck --full 2>&1
git clone -q . ../two && git -C ../two log --format='%h %s' && git -C ../two grep -n a
git status --short && git diff HEAD~1 --stat && git stash list && git archive HEAD | tar t
"""

_NODE = """
cat > main.mjs <<'END'
import http from 'node:http';
import os from 'node:os';
import fs from 'node:fs/promises';
import { createHash, randomUUID } from 'node:crypto';
import { execFile, fork } from 'node:child_process';
import { promisify } from 'node:util';
import { gzipSync, gunzipSync } from 'node:zlib';
import { Worker } from 'node:worker_threads';
const server = http.createServer((_, answer) => answer.end('served'));
await new Promise(done => server.listen(0, '127.0.0.1', done));
console.log(await (await fetch(`http://127.0.0.1:${server.address().port}/`)).text());
server.close();
const work = "require('worker_threads').parentPort.postMessage(6 * 7)";
const worker = new Worker(work, { eval: true });
console.log(await new Promise(done => worker.on('message', done)));
console.log((await promisify(execFile)('/bin/echo', ['child'])).stdout.trim());
await fs.writeFile('forked.mjs', 'process.send("forked"); process.disconnect()');
console.log(await new Promise(done => fork('forked.mjs').on('message', done)));
await fs.writeFile('x', gzipSync('kept'));
await fs.copyFile('x', 'y');
console.log(gunzipSync(await fs.readFile('y')).toString());
console.log(createHash('sha256').update('x').digest('hex'), randomUUID().length);
console.log(os.cpus().length > 0, os.totalmem() > 0, os.availableParallelism() > 0);
console.log(Object.keys(os.networkInterfaces()).includes('lo'));
END
node main.mjs
"""

_NPM = """
export HOME=$PWD npm_config_cache=$PWD/cache npm_config_update_notifier=false
export npm_config_fund=false npm_config_audit=false
mkdir -p dep app
echo '{"name": "dep", "version": "1.0.0", "main": "i.js"}' > dep/package.json
echo 'module.exports = 41' > dep/i.js
cd dep && npm pack --silent && cd ../app
echo '{"name": "app", "version": "1.0.0", "scripts": {"test": "node t.js"}}' > package.json
echo 'console.log(1 + require("dep"))' > t.js
npm install --offline --silent ../dep/dep-1.0.0.tgz
npm test --silent && npm ls --parseable | wc -l
"""

_NUMPY = """
cat > main.py <<'END'
import asyncio, concurrent.futures, multiprocessing, sqlite3, subprocess, tempfile
import numpy
def square(n): return n * n
async def main():
    child = await asyncio.create_subprocess_exec('echo', 'async', stdout=-1)
    print((await child.communicate())[0].decode().strip())
if __name__ == '__main__':
    matrix = numpy.arange(250_000, dtype=float).reshape(500, 500)
    print(int((matrix @ numpy.eye(500)).sum()), numpy.linalg.det(numpy.eye(40)))
    for method in ('fork', 'spawn'):
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(pool.map(square, range(10)))
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        print(sum(threads.map(square, range(100))))
    shared = multiprocessing.Array('i', 3)
    shared[1] = 5
    print(list(shared))
    asyncio.run(main())
    with tempfile.TemporaryDirectory() as folder:
        base = sqlite3.connect(folder + '/x.db')
        print(base.execute('select 1 + 1').fetchone())
    print(subprocess.run(['uname', '-s'], capture_output=True, text=True).stdout.strip())
END
python3 main.py
"""

_PYTEST = """
cat > test_it.py <<'END'
import subprocess, sys
def test_files(tmp_path):
    (tmp_path / 'a').write_text('b')
    assert (tmp_path / 'a').read_text() == 'b'
def test_output(capfd):
    subprocess.run([sys.executable, '-c', 'print(3)'], check=True)
    assert capfd.readouterr().out == '3\\n'
END
python3 -m pytest -q -p no:cacheprovider test_it.py | sed 's/ in .*//'
"""

_RIPGREP = """
mkdir -p a/b && echo needle > a/b/c && echo straw > a/d && printf 'x\\nneedle\\n' > e
rg -n --sort path needle .; rg --mmap -c --sort path needle .; rg --files --sort path
rg -j4 -l straw .
"""

_SQLITE = """
sqlite3 x.db 'pragma journal_mode=wal; create table t(a primary key, b);' \\
  "insert into t values (1, 'x'), (2, 'y');" 'select count(*), max(b) from t;' 'vacuum;'
sqlite3 x.db '.dump' && sqlite3 x.db 'pragma integrity_check'
"""

_CARGO = """
export HOME=$PWD CARGO_HOME=$PWD/cargo PATH=/usr/bin:/bin
mkdir -p app/src && cd app
printf '[package]\\nname = "app"\\nversion = "0.1.0"\\nedition = "2021"\\n' > Cargo.toml
cat > src/main.rs <<'END'
use std::{net::*, io::*, thread};
fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    let other = thread::spawn(move || {
        TcpStream::connect(place).unwrap().write_all(b"rust").unwrap();
    });
    let mut said = String::new();
    listener.accept().unwrap().0.read_to_string(&mut said).unwrap();
    other.join().unwrap();
    println!("{said}");
}
#[test]
fn works() { assert_eq!(1 + 1, 2); }
END
cargo build -q --offline && cargo run -q --offline
cargo test --offline 2>/dev/null | grep -c '1 passed'
"""

_GO = """
export HOME=$PWD GOCACHE=$PWD/cache GOPATH=$PWD/go GOFLAGS=-mod=mod GOPROXY=off CGO_ENABLED=0
mkdir -p app && cd app && printf 'module app\\n' > go.mod
cat > main.go <<'END'
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"sync"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "go")
	}))
	answer, err := http.Get("http://" + listener.Addr().String())
	if err != nil {
		panic(err)
	}
	body, _ := io.ReadAll(answer.Body)
	said, err := exec.Command("echo", "child").Output()
	fmt.Println(string(body), string(said), err)
	var group sync.WaitGroup
	for i := 0; i < 50; i++ {
		group.Add(1)
		go func() { defer group.Done(); exec.Command("true").Run() }()
	}
	group.Wait()
}
END
go vet ./... && go build -o it . && ./it
"""

_SHELL = """
seq 200000 -1 1 | sort -n --parallel=2 | tail -1
head -c 3000000 /dev/zero | gzip | gunzip | sha256sum
tar cf - /etc/hostname 2>/dev/null | wc -c
find /usr/include -name 'stdio.h' | head -1; ls -la /proc/self/fd | wc -l
cp --reflink=auto --sparse=always /usr/bin/env copy && cmp copy /usr/bin/env && echo same
sleep 60 & kill $!; wait $! || echo $?; trap 'echo trapped' USR1; kill -USR1 $$
mkfifo way; (echo through > way &); cat way; timeout 5 true; echo $?
awk 'BEGIN { printf "%d\\n", 2 ^ 20 }'; perl -e 'print fork() ? wait() && "parent\\n" : ""'
xargs -P4 -n1 echo < /etc/hostname | wc -l; mktemp -d -p . | wc -l; nice -n 3 true; stat -c %F .
"""

SCRIPTS = {
    "shell": _SHELL,
    "gcc": _GCC,
    "make": _MAKE,
    "git": _GIT,
    "node": _NODE,
    "npm": _NPM,
    "python": _NUMPY,
    "pytest": _PYTEST,
    "ripgrep": _RIPGREP,
    "sqlite3": _SQLITE,
    "cargo": _CARGO,
    "go": _GO,
}


@pytest.mark.parametrize("program", SCRIPTS)
def test_a_program_works_as_it_does_outside(jail: Jail, program: str) -> None:
    script = f"set -e\nPATH=/usr/bin:/bin\n{SCRIPTS[program]}"
    elsewhere = jail.work
    outside = subprocess.run(
        ["/bin/sh"], input=script, capture_output=True, text=True, cwd=elsewhere
    )
    assert outside.returncode == 0, f"see scripts/debian-packages: {outside.stderr}"
    expected = outside.stdout.strip().replace(str(elsewhere), "")
    result = jail.sh(script, cwd=jail.fresh_work(), limits=LIMITS, timeout="300s")
    assert result.result is not None, result.violations
    assert result.result.exit_code == 0, result.result.stderr
    assert jail.said(result).replace(str(jail.work), "") == expected
    # The list of permitted calls is long enough: nothing was asked for that is not on it.
    assert result.denials == ()


def test_curl_reaches_a_host_that_was_granted(tmp_path: Path) -> None:
    with http_server() as web:
        net = Net(tmp_path, hosts=["api.test"], resolve={"api.test:80": web.place})
        try:
            result = net.run("curl -sS http://api.test/x; echo; curl -sS file:///etc/hostname")
        finally:
            net.close()
    assert said(result) == ["hello api.test", "actum"]
    assert result.denials == ()
