#!/bin/busybox sh
# The first program of the virtual machine. It lays a layer in memory over the root of
# the host, which it only reads, and makes that the root of everything: a chroot would
# not do, as who enters another mount namespace finds himself at its root.
[ $$ = 1 ] || exit 1 # on any other machine it would take the root away
export PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /host /layer /root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
end() { echo "hawser-vm: no root, $1"; sync; echo o >/proc/sysrq-trigger; sleep 60; }
for module in $(cat /modules/order); do insmod "/modules/$module" || end 125; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose host /host || end 125
mount -t tmpfs -o size=75% tmpfs /layer
mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /root || end 125
mount -t proc proc /root/proc
mount -t sysfs sysfs /root/sys
mount -t devtmpfs devtmpfs /root/dev
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts devpts /root/dev/pts
for dir in dev/shm run; do mount -t tmpfs tmpfs "/root/$dir"; done
mount -t cgroup2 cgroup2 /root/sys/fs/cgroup 2>/dev/null
mkdir -p /root/run/netns /root/run/lock
# The kernel's modules, where modprobe looks for them.
read -r modules </modules/where
rm -rf /root/lib/modules
ln -s "$modules" /root/lib/modules
ifconfig lo 127.0.0.1 up
hostname vm
cp /job /begin /root/run/
exec switch_root /root /bin/bash /run/begin
