package keys

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"
)

// ErrNotRoot is the error for content that is not a root key. It never quotes the content.
var ErrNotRoot = errors.New("not a root key: want 32 bytes, the same in base64, lines of an epoch and such a key, or an age file of one of them")

// ErrEncrypted is the error for an age file without an identity to decrypt it.
var ErrEncrypted = errors.New("the root key is encrypted with age, and no identity was given to open it")

// maxRootFile is the maximum size of the decrypted content of an age file in bytes. It is enough
// for a thousand root keys.
const maxRootFile = 64 << 10

// ReadRoot parses the content of a root key file. A root key for all epochs is 32 bytes, or one
// line of base64. Several root keys have one line each: first epoch, space, key in base64. The
// content can also be an age file (armored or not) of one of these, which one of the identities
// decrypts. Errors never quote the content.
func ReadRoot(raw []byte, identities ...age.Identity) (*Root, error) {
	if isEncrypted(raw) {
		plain, err := decrypt(raw, identities)
		if err != nil {
			return nil, err
		}
		raw = plain
	}
	if len(raw) == RootSize {
		return newRoot([]rootKey{{from: 1, key: [RootSize]byte(raw)}}), nil
	}
	text := strings.TrimSpace(string(raw))
	if key, ok := parseKey(text); ok {
		return newRoot([]rootKey{{from: 1, key: key}}), nil
	}
	if first, _, _ := strings.Cut(text, "\n"); len(strings.Fields(first)) < 2 {
		return nil, ErrNotRoot
	}
	list, err := parseLines(string(raw))
	if err != nil {
		return nil, err
	}
	return newRoot(list), nil
}

func parseKey(text string) (key [RootSize]byte, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != RootSize {
		return key, false
	}
	return [RootSize]byte(raw), true
}

// parseLines parses root keys with their first epochs, one per line.
func parseLines(text string) ([]rootKey, error) {
	var out []rootKey
	lines := map[[RootSize]byte]int{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		if strings.TrimSpace(line) == "" {
			continue
		}
		k, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if n := len(out); n > 0 && k.from <= out[n-1].from {
			return nil, fmt.Errorf("line %d: epoch %d does not follow on %d: list each first epoch once, in ascending order", number, k.from, out[n-1].from)
		}
		if firstLine, duplicate := lines[k.key]; duplicate {
			return nil, fmt.Errorf("line %d: the same root key as in line %d: each line wants a key of its own", number, firstLine)
		}
		lines[k.key] = number
		out = append(out, k)
	}
	return out, nil
}

func parseLine(line string) (k rootKey, err error) {
	words := strings.Fields(line)
	if len(words) != 2 {
		return k, errors.New("want the first epoch that the root key serves, a space, and the key in base64")
	}
	k.from, err = strconv.Atoi(words[0])
	if err != nil || k.from < 1 || strconv.Itoa(k.from) != words[0] {
		return k, errors.New("the first word is not an epoch: want a number of 1 or more") // the word may be the key
	}
	key, ok := parseKey(words[1])
	if !ok {
		return k, errors.New("the root key is not 32 bytes in base64")
	}
	k.key = key
	return k, nil
}

// Encode returns the content of a root key file. One key for all epochs is base64 with a newline.
// Otherwise each root key has a line with its first epoch.
func (r *Root) Encode() []byte {
	list := r.list()
	if len(list) == 1 && list[0].from == 1 {
		return []byte(base64.StdEncoding.EncodeToString(list[0].key[:]) + "\n")
	}
	var out []byte
	for _, k := range list {
		out = fmt.Appendf(out, "%d %s\n", k.from, base64.StdEncoding.EncodeToString(k.key[:]))
	}
	return out
}

// ageHeader is the prefix of every age file (age-encryption.org/v1).
const ageHeader = "age-encryption.org/"

func isEncrypted(raw []byte) bool {
	return bytes.HasPrefix(raw, []byte(ageHeader)) || bytes.HasPrefix(raw, []byte(armor.Header))
}

func decrypt(raw []byte, identities []age.Identity) ([]byte, error) {
	if len(identities) == 0 {
		return nil, ErrEncrypted
	}
	var in io.Reader = bytes.NewReader(raw)
	if bytes.HasPrefix(raw, []byte(armor.Header)) {
		in = armor.NewReader(in)
	}
	out, err := age.Decrypt(in, identities...)
	if err != nil {
		var mismatch *age.NoIdentityMatchError
		if errors.As(err, &mismatch) {
			return nil, errors.New("open root key: none of the identities opens it")
		}
		return nil, fmt.Errorf("open root key: %w", err)
	}
	// Read one byte more than the limit, to detect a longer file. Without its end the newest
	// root key would be missing.
	plain, err := io.ReadAll(io.LimitReader(out, maxRootFile+1))
	if err != nil {
		return nil, fmt.Errorf("open root key: %w", err)
	}
	if len(plain) > maxRootFile {
		return nil, fmt.Errorf("open root key: more than %d bytes", maxRootFile)
	}
	return plain, nil
}
