package userspacewg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

const (
	// readTimeout bounds one read. A device with 1 000 peers takes 4 ms.
	readTimeout = 500 * time.Millisecond
	// writeTimeout bounds one configuration, together with peerTimeout for each
	// peer in it. 1 000 new peers take 200 ms.
	writeTimeout = time.Second
	peerTimeout  = 20 * time.Millisecond
)

// ErrNoAnswer means that the process of a device is gone or does not respond.
var ErrNoAnswer = errors.New("no answer")

// Control reads and configures WireGuard devices, in the kernel or in userspace processes. Its
// calls have short timeouts. It is safe for concurrent use.
type Control struct {
	// TimeoutFactor multiplies all timeouts, for slow machines; values below 1 count as 1. It
	// must be set before the first use.
	TimeoutFactor int

	client *wgctrl.Client

	mu        sync.Mutex
	serial    int
	exchanges map[string]map[int]time.Time // by device and serial: when exchanges began
}

// OpenControl opens the control of the devices in the current network namespace.
func OpenControl() (*Control, error) {
	client, err := wgctrl.New()
	if err != nil {
		return nil, fmt.Errorf("open wireguard control: %w", err)
	}
	return &Control{client: client, exchanges: map[string]map[int]time.Time{}}, nil
}

// Close releases the control. It changes no device.
func (c *Control) Close() error { return c.client.Close() }

// Device reads a device with its peers. It returns ErrNoAnswer if no process serves the device.
func (c *Control) Device(ctx context.Context, name string) (*wgtypes.Device, error) {
	return exchange(ctx, c, name, readTimeout, func() (*wgtypes.Device, error) { return c.client.Device(name) })
}

// Configure changes a device. It returns ErrNoAnswer if no process serves the device; the
// change may then still happen later.
func (c *Control) Configure(ctx context.Context, name string, config wgtypes.Config) error {
	timeout := writeTimeout + time.Duration(len(config.Peers))*peerTimeout
	_, err := exchange(ctx, c, name, timeout, func() (struct{}, error) {
		return struct{}{}, c.client.ConfigureDevice(name, config)
	})
	return err
}

// exchange runs one call with a timeout. The library's calls cannot be cancelled: after a
// timeout, the call ends when the process responds or ends. Until then, the device gets no
// other request.
func exchange[T any](ctx context.Context, c *Control, name string, timeout time.Duration, call func() (T, error)) (T, error) {
	var zero T
	if c.isHung(name) {
		return zero, fmt.Errorf("wireguard device %s: %w", name, ErrNoAnswer)
	}
	ctx, cancel := context.WithTimeout(ctx, c.scaleTimeout(timeout))
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	done, untrack := make(chan answer, 1), c.trackExchange(name)
	go func() {
		value, err := call()
		untrack()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		if isUnserved(a.err) {
			return zero, fmt.Errorf("wireguard device %s: %w: %w", name, ErrNoAnswer, a.err)
		}
		return a.value, a.err
	case <-ctx.Done():
		return zero, fmt.Errorf("wireguard device %s: %w: %w", name, ErrNoAnswer, ctx.Err())
	}
}

func (c *Control) scaleTimeout(timeout time.Duration) time.Duration {
	return timeout * time.Duration(max(c.TimeoutFactor, 1))
}

// isHung reports whether an exchange with the device has exceeded the maximum timeout.
func (c *Control) isHung(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, start := range c.exchanges[name] {
		if time.Since(start) > c.scaleTimeout(readTimeout) {
			return true
		}
	}
	return false
}

// trackExchange records an exchange with the device, until the returned function is called.
func (c *Control) trackExchange(name string) (untrack func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	serial := c.serial
	if c.exchanges[name] == nil {
		c.exchanges[name] = map[int]time.Time{}
	}
	c.exchanges[name][serial] = time.Now()
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.exchanges[name], serial); len(c.exchanges[name]) == 0 {
			delete(c.exchanges, name)
		}
	}
}

// isUnserved reports whether an error means that no process serves the device. A killed process
// leaves its socket, which refuses connections. A process that ends during a call truncates the
// reply.
func isUnserved(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EAGAIN) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}
