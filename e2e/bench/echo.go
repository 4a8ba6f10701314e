package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

const echoSize = 64 // bytes of a request and of its answer

// echo echoes every request on a port, until it is killed.
func echo(port string) error {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			buf := make([]byte, echoSize)
			for {
				if _, err := io.ReadFull(conn, buf); err != nil {
					return
				}
				if _, err := conn.Write(buf); err != nil {
					return
				}
			}
		}()
	}
}

// measureRequests sends requests one after the other over one connection. It prints the duration
// of each in nanoseconds, as JSON.
func measureRequests(address, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	buf := make([]byte, echoSize)
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if _, err := conn.Write(buf); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			return err
		}
		took[i] = time.Since(start)
	}
	return json.NewEncoder(os.Stdout).Encode(took)
}
