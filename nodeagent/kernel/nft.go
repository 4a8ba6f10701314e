package kernel

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"

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

// nftWith runs work with a socket of its own.
func nftWith(o NFTOptions, work func(*nftSocket) error) (err error) {
	s, err := nftDial(o.NetNS)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return work(s)
}

// nftStamp tells the ruleset's generation. It changes with every transaction in
// this network namespace, also those of other tables.
func nftStamp(o NFTOptions) (string, error) {
	var id uint32
	err := nftWith(o, func(s *nftSocket) (err error) {
		id, err = s.generation()
		return err
	})
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(uint64(id), 10), nil
}

// nftSettled repeats a read that a change of the ruleset interrupted.
func nftSettled(ctx context.Context, read func() error) error {
	const attempts = 10
	var err error
	for range attempts {
		if err = ctx.Err(); err != nil {
			return err
		}
		if err = read(); !errors.Is(err, errNftInterrupted) {
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
