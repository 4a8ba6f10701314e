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
	"hawser.dev/hawser/nodeagent/kernel/nftables"
)

// NFTOptions configures the nftables kinds and their monitor.
type NFTOptions struct {
	// NetNS is a file descriptor of the network namespace. 0 is the caller's namespace.
	NetNS int
}

// nftTable is the name of table inet hawser.
func nftTable() nftables.TableName {
	return nftables.TableName{Family: nftables.FamilyINet, Name: desired.TableName}
}

// errNftNoTable means that table inet hawser does not exist.
var errNftNoTable = errors.New("table inet " + desired.TableName + " does not exist")

// nftTableObject is the ErrBlocked.On of changes that cannot be applied because the table is
// missing.
const nftTableObject = "table inet " + desired.TableName

// nftConn is a netlink connection that stays open between calls. It is safe for concurrent use.
type nftConn struct {
	opts NFTOptions
	mu   sync.Mutex
	conn *nftables.Conn
}

// use calls do with the connection. It opens the connection if needed, and closes it if it is
// broken afterwards.
func (c *nftConn) use(do func(*nftables.Conn) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		conn, err := nftables.Dial(c.opts.NetNS)
		if err != nil {
			return err
		}
		c.conn = conn
	}
	err := do(c.conn)
	if c.conn.Broken() {
		err = errors.Join(err, c.conn.Close())
		c.conn = nil
	}
	return err
}

// nft calls do with a new connection in the namespace, and closes the connection afterwards.
func (ns *Namespace) nft(do func(*nftables.Conn) error) error {
	return ns.inside(func() error {
		conn, err := nftables.Dial(0)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return do(conn)
	})
}

// nftCommit commits one transaction in the namespace.
func (ns *Namespace) nftCommit(write func(*nftables.Batch)) error {
	return ns.nft(func(conn *nftables.Conn) error {
		b := nftables.NewBatch(0)
		write(b)
		return conn.Commit(b)
	})
}

// poll returns the result of t.poll on the connection.
func (c *nftConn) poll(t *nftChangeTracker) (current, touched uint32, err error) {
	err = c.use(func(conn *nftables.Conn) (err error) {
		current, touched, err = t.poll(conn)
		return err
	})
	return current, touched, err
}

func (c *nftConn) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}

// nftVersion formats a generation as a version. It passes err through.
func nftVersion(generation uint32, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(uint64(generation), 10), nil
}

// retryInterrupted runs do, and repeats it if a concurrent ruleset change interrupted one of its
// reads, at most 9 times.
func (c *nftConn) retryInterrupted(ctx context.Context, do func(*nftables.Conn) error) error {
	const attempts = 10
	var err error
	for range attempts {
		if err = ctx.Err(); err != nil {
			return err
		}
		if err = c.use(do); !errors.Is(err, nftables.ErrInterrupted) {
			return err
		}
	}
	return err
}

// nftDigest returns a digest of the lines that describe a table: the first 16 bytes of SHA-256, in
// hexadecimal. It sorts lines in place, so their order does not matter.
func nftDigest(lines []string) string {
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:16])
}
