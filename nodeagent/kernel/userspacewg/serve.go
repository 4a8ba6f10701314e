// Package userspacewg is the userspace WireGuard process: a TUN device and the
// WireGuard protocol behind it, for kernels without WireGuard. It runs as its
// own process, so that tunnels outlive a restart of the agent, and is
// configured like a kernel device, through the socket that wgctrl and wg(8) use.
package userspacewg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"

	"hawser.dev/hawser/nodeagent/desired"
)

// DefaultMTU is the MTU of a new device, bytes, until the agent sets its own.
const DefaultMTU = device.DefaultMTU

// Serve creates the TUN device and serves it until ctx is done or the device is deleted. The
// device and its socket are removed when it returns.
func Serve(ctx context.Context, name string, mtu int, log *slog.Logger) error {
	if err := raisePriority(); err != nil {
		log.Debug("priority of the tunnel process not raised", "err", err)
	}
	tunnel, err := tun.CreateTUN(name, mtu)
	if err != nil {
		return fmt.Errorf("create tun device %s: %w", name, err)
	}
	if err := setAlias(name); err != nil {
		return errors.Join(err, tunnel.Close())
	}
	file, err := ipc.UAPIOpen(name)
	if err != nil {
		return errors.Join(fmt.Errorf("open control socket of %s: %w", name, err), tunnel.Close())
	}
	control, err := listen(file)
	if err != nil {
		return errors.Join(fmt.Errorf("listen on control socket of %s: %w", name, err), file.Close(), tunnel.Close())
	}
	dev := device.NewDevice(tunnel, newBind(), &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf: func(format string, args ...any) {
			log.Error("wireguard", "device", name, "err", fmt.Sprintf(format, args...))
		},
	})
	lost := make(chan error, 1)
	go acceptControl(control, dev, lost)
	if err = waitForEnd(ctx, dev, control.Addr().String(), lost); err != nil {
		err = fmt.Errorf("control socket of %s is lost: %w", name, err)
	}
	closeErr := control.Close()
	dev.Close()
	if errors.Is(closeErr, net.ErrClosed) {
		closeErr = nil
	}
	return errors.Join(err, closeErr, file.Close())
}

// socketCheckInterval is the interval of checks of the control socket. Without the socket, the
// device cannot be configured, and the process must restart.
const socketCheckInterval = time.Second

// listen accepts on the control socket. The library's function uses an inotify instance for
// each device, of which a machine has 128 (inotify(7)).
func listen(file *os.File) (net.Listener, error) {
	l, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(true)
	}
	return l, nil
}

// waitForEnd returns when ctx is done or the TUN device is gone. It returns an error if the control
// socket is unreachable.
func waitForEnd(ctx context.Context, dev *device.Device, socket string, lost <-chan error) error {
	tick := time.NewTicker(socketCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-dev.Wait():
			return nil
		case err := <-lost:
			return err
		case <-tick.C:
			if _, err := os.Lstat(socket); errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
}

// setAlias sets the alias by which the agent recognizes the device.
func setAlias(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find tun device %s: %w", name, err)
	}
	if err := netlink.LinkSetAlias(link, desired.DeviceAlias); err != nil {
		return fmt.Errorf("set alias of %s: %w", name, err)
	}
	return nil
}

func acceptControl(control net.Listener, dev *device.Device, lost chan<- error) {
	for {
		c, err := control.Accept()
		if err != nil {
			lost <- err
			return
		}
		go dev.IpcHandle(c)
	}
}
