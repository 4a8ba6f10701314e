package kernel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"hawser.dev/hawser/nodeagent/desired"
)

// NFTOptions says where the nftables kinds and their monitor work.
type NFTOptions struct {
	// NetNS is a file descriptor of the network namespace; 0 is the caller's own.
	NetNS int
}

// errNftNoTable says that table inet hawser does not exist.
var errNftNoTable = errors.New("table inet " + desired.TableName + " does not exist")

// nftOn is what a change waits for while the table is missing.
const nftOn = "table inet " + desired.TableName

// nftConn is a socket that stays open from one use to the next: when a socket
// that deleted something is closed, the kernel first frees what was deleted,
// which takes it 5 to 25 ms.
type nftConn struct {
	opts   NFTOptions
	mu     sync.Mutex
	socket *nftSocket
}

// use runs work with the socket, and throws it away when it is left in the
// middle of an answer.
func (c *nftConn) use(work func(*nftSocket) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.socket == nil {
		s, err := nftDial(c.opts.NetNS)
		if err != nil {
			return err
		}
		c.socket = s
	}
	err := work(c.socket)
	if c.socket.broken {
		err = errors.Join(err, c.socket.close())
		c.socket = nil
	}
	return err
}

// generation gives the ruleset's. It changes with every transaction in this network
// namespace, also those of other tables.
func (c *nftConn) generation() (id uint32, err error) {
	err = c.use(func(s *nftSocket) (err error) {
		id, err = s.generation()
		return err
	})
	return id, err
}

// look asks a track.
func (c *nftConn) look(t *nftTrack) (seen, touched uint32, err error) {
	err = c.use(func(s *nftSocket) (err error) {
		seen, touched, err = t.look(s)
		return err
	})
	return seen, touched, err
}

func (c *nftConn) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.socket == nil {
		return nil
	}
	err := c.socket.close()
	c.socket = nil
	return err
}

// nftStamp is a generation as text.
func nftStamp(generation uint32, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(uint64(generation), 10), nil
}

// settled repeats a read that a change of the ruleset interrupted.
func (c *nftConn) settled(ctx context.Context, read func(*nftSocket) error) error {
	const attempts = 10
	var err error
	for range attempts {
		if err = ctx.Err(); err != nil {
			return err
		}
		if err = c.use(read); !errors.Is(err, errNftInterrupted) {
			return err
		}
	}
	return err
}

// nftDigest is the digest of a skeleton, told in lines of any order.
func nftDigest(lines []string) string {
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:16])
}
