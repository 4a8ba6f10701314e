package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

const echoSize = 64 // bytes of a request, and of its answer

// echo answers every request on a port with itself, until it is killed.
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

// ask sends requests one after the other over one connection, and prints what
// each took, in nanoseconds, as JSON.
func ask(address, count string) error {
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
		begin := time.Now()
		if _, err := conn.Write(buf); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			return err
		}
		took[i] = time.Since(begin)
	}
	return json.NewEncoder(os.Stdout).Encode(took)
}

// knock calls a URL again and again, each time with a new lookup and connection.
// It prints "waiting" after the first failure and the time of the first success,
// in nanoseconds since 1970.
func knock(url string) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	deadline := time.Now().Add(time.Minute)
	for first := true; ; first = false {
		err := once(&client, url)
		if err == nil {
			fmt.Println(time.Now().UnixNano())
			return nil
		}
		if first {
			fmt.Println("waiting")
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func once(client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("status %s", answer.Status))
	}
	return errors.Join(err, answer.Body.Close())
}
