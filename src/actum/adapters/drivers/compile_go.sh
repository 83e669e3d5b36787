# Compiles a Go package and its driver, offline. $1: the module's path.
set -eu
mkdir /tmp/build
cp -R /run/actum/source/. /tmp/build
chmod -R u+w /tmp/build
cd /tmp/build
mkdir -p internal_actum_driver
cp /run/actum/main.go internal_actum_driver/main.go
[ -e go.mod ] || printf 'module %s\n\ngo 1.18\n' "$1" >go.mod
export HOME=/tmp GOCACHE=/tmp/cache GOPATH=/tmp/go GOPROXY=off GOSUMDB=off GOFLAGS= GOWORK=off
export GOTOOLCHAIN=local CGO_ENABLED=0
go build -ldflags '-s -w -buildid=' -o /tmp/program ./internal_actum_driver
cp /tmp/program "${ACTUM_ARTIFACTS:-/artifacts}/program"
printf '{"value": null}'
