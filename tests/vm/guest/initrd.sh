#!/bin/busybox sh
# From the first file system of an emulated machine to the command, on the host's files.
bb=/bin/busybox
$bb mkdir -p /proc /sys /dev /host /layer /new
$bb mount -t devtmpfs dev /dev
for module in /modules/*; do $bb insmod $module; done
$bb mount -t virtiofs -o ro host /host
$bb mount -t tmpfs layer /layer
$bb mkdir /layer/upper /layer/work
# The host's files, and what is written goes to memory.
$bb mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work root /new
$bb mount -t devtmpfs dev /new/dev
$bb mkdir -p /new/dev/shm /new/run/machine
$bb mount -t tmpfs machine /new/run/machine
$bb cp /bin/busybox /command /mounts.sh /new/run/machine/
$bb cat >/new/run/machine/start <<'END'
exec >/dev/ttyS1 2>&1 </dev/null
/run/machine/busybox stty -F /dev/ttyS1 raw
. /run/machine/mounts.sh
mkdir /tmp/disk && mount -t ext4 /dev/vda /tmp/disk && chmod 1777 /tmp/disk
. /run/machine/command
code=$?
printf '\n--- exit code %d' $code
/run/machine/busybox stty -F /dev/ttyS1 >/dev/null
/run/machine/busybox poweroff -f
END
exec $bb switch_root /new /bin/sh /run/machine/start
