package socket

import (
	"errors"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// DeviceWatch reports changes of the network devices of one network namespace.
type DeviceWatch struct {
	events  *netlink.Conn // nil if the kernel refused the subscription
	done    chan struct{}
	running sync.WaitGroup
}

// WatchDevices calls changed after each change of a device in the network namespace of the calling
// thread. It also calls changed if it may have missed a change. changed must not block. If the
// kernel does not send the changes, changed is called every 250 ms instead.
func WatchDevices(changed func()) *DeviceWatch {
	w := &DeviceWatch{done: make(chan struct{})}
	events, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: 1 << (unix.RTNLGRP_LINK - 1)})
	if err == nil {
		w.events = events
	}
	w.running.Go(func() { w.run(changed) })
	return w
}

func (w *DeviceWatch) run(changed func()) {
	for {
		pause := time.Duration(0)
		if w.events == nil {
			pause = reopenInterval
		} else if _, err := w.events.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			pause = reopenInterval
		}
		select {
		case <-w.done:
			return
		case <-time.After(pause):
			changed()
		}
	}
}

// Close stops the watch. changed is not called afterwards.
func (w *DeviceWatch) Close() error {
	close(w.done)
	var err error
	if w.events != nil {
		err = w.events.Close()
	}
	w.running.Wait()
	return err
}
