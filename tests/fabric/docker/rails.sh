#!/bin/sh
# The entrypoint of a box in these tests: every netdev as the kernel shows it, those on a fabric network called
# ConnectX; then wait for the test's faults, then the kit. MTU, carrier and addresses stay the kernel's own.
set -eu
for device in /sys/devices/virtual/net/*; do
    netdev=${device##*/}
    mkdir "/sys/class/net/$netdev"
    for file in "$device"/*; do
        ln -s "$file" "/sys/class/net/$netdev/"
    done
    if ip -4 -o address show dev "$netdev" | grep -qF " $FABRIC_PREFIX"; then
        mkdir "/sys/class/net/$netdev/device"
        echo 0x15b3 >"/sys/class/net/$netdev/device/vendor"
    fi
done
until [ -e /test/go ]; do
    sleep 0.1
done
exec "$@"
