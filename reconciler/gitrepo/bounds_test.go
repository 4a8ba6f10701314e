//go:build !race

package gitrepo_test

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"hawser.dev/hawser/reconciler/gitrepo"
)

// Types of objects in a pack (gitformat-pack(5)).
const (
	packCommit, packBlob, packOffset, packRef = 1, 3, 6, 7
)

// pack collects the objects of a pack.
type pack struct {
	bytes.Buffer
	count uint32
}

// add appends an object and returns its offset. size is the size in its header. base follows the
// header.
func (p *pack) add(kind byte, size uint64, base, content []byte) (offset int) {
	const header = 12
	offset = header + p.Len()
	first := kind<<4 | byte(size&15)
	if size >>= 4; size > 0 {
		first |= 0x80
	}
	p.WriteByte(first)
	for size > 0 {
		b := byte(size & 0x7f)
		if size >>= 7; size > 0 {
			b |= 0x80
		}
		p.WriteByte(b)
	}
	p.Write(base)
	z := zlib.NewWriter(p)
	_, _ = z.Write(content)
	_ = z.Close()
	p.count++
	return offset
}

// finish returns the pack with count as its number of objects.
func (p *pack) finish(count uint32) []byte {
	out := []byte("PACK")
	out = binary.BigEndian.AppendUint32(out, 2)
	out = binary.BigEndian.AppendUint32(out, count)
	out = append(out, p.Bytes()...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// delta returns a delta for a base of one byte. result is the size of the result.
func delta(result uint64) []byte {
	out := binary.AppendUvarint([]byte{1}, result)
	return append(out, 0x90, 1) // copies the byte
}

// encodeOffset encodes the distance to the base of an object.
func encodeOffset(distance int) []byte {
	out := []byte{byte(distance & 0x7f)}
	for distance >>= 7; distance > 0; distance >>= 7 {
		distance--
		out = append([]byte{0x80 | byte(distance&0x7f)}, out...)
	}
	return out
}

// TestHostilePacks checks that a fetch rejects a malformed pack, and a pack over a limit. The fetch
// leaves no file, and the next commit can be fetched.
func TestHostilePacks(t *testing.T) {
	t.Parallel()
	const bound = " are fetched"
	bombs := func() map[string][]byte {
		zeros := make([]byte, 101<<20)
		packs := map[string][]byte{}
		add := func(name string, count uint32, fill func(p *pack)) {
			p := &pack{}
			fill(p)
			if count == 0 {
				count = p.count
			}
			packs[name] = p.finish(count)
		}
		add("large blob", 0, func(p *pack) { p.add(packBlob, uint64(len(zeros)), nil, zeros) })
		add("large commit", 0, func(p *pack) { p.add(packCommit, uint64(len(zeros)), nil, zeros) })
		add("delta with a large result", 0, func(p *pack) {
			base := p.add(packBlob, 1, nil, []byte("x"))
			d := delta(1 << 40)
			p.add(packOffset, uint64(len(d)), encodeOffset(12+p.Len()-base), d)
		})
		add("delta with a result of 65 MiB", 0, func(p *pack) {
			base, d := p.add(packBlob, 1, nil, []byte("x")), delta(65<<20)
			p.add(packOffset, uint64(len(d)), encodeOffset(12+p.Len()-base), d)
		})
		add("delta of an object elsewhere", 0, func(p *pack) {
			d := delta(1 << 40)
			p.add(packRef, uint64(len(d)), make([]byte, 20), d)
		})
		add("large delta", 0, func(p *pack) {
			base := p.add(packBlob, 1, nil, []byte("x"))
			p.add(packOffset, uint64(len(zeros)), encodeOffset(12+p.Len()-base), append(delta(5), zeros[:len(zeros)-len(delta(5))]...))
		})
		add("many deltas with large results", 0, func(p *pack) {
			base, d := p.add(packBlob, 1, nil, []byte("x")), delta(60<<20)
			for range 1100 {
				p.add(packOffset, uint64(len(d)), encodeOffset(12+p.Len()-base), d)
			}
		})
		add("many objects", 4_000_000_000, func(p *pack) { p.add(packBlob, 1, nil, []byte("x")) })
		return packs
	}()
	malformed := map[string][]byte{
		"no pack":                []byte("<html>hello, this is a proxy, log in</html>"),
		"cut":                    bombs["delta of an object elsewhere"][:20],
		"size without an end":    append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"), bytes.Repeat([]byte{0xff}, 100)...),
		"unknown type":           append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"), bytes.Repeat([]byte{0x50}, 100)...),
		"base before the pack":   append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01\x65\xff\xff\x7f"), bytes.Repeat([]byte{0}, 100)...),
		"base is the object":     append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01\x65\x00"), bytes.Repeat([]byte{0}, 100)...),
		"more objects than said": append((&pack{}).finish(1), 0),
	}
	for name, raw := range bombs {
		t.Run(name, func(t *testing.T) { checkHostile(t, raw, true, bound) })
	}
	for name, raw := range malformed {
		t.Run(name, func(t *testing.T) { checkHostile(t, raw, false, "read repository ") })
	}
}

func checkHostile(t *testing.T, raw []byte, unusable bool, want string) {
	t.Helper()
	t.Parallel()
	hostile := make(chan bool, 1)
	dir, url := slowServer(t, "/set.git/git-upload-pack", func(w http.ResponseWriter, _ *http.Request, body []byte) {
		select {
		case <-hostile:
			_, _ = fmt.Fprint(w, "0008NAK\n")
			for remaining := raw; len(remaining) > 0; {
				n := min(len(remaining), 60_000)
				_, _ = fmt.Fprintf(w, "%04x\x01%s", n+5, remaining[:n])
				remaining = remaining[n:]
			}
			_, _ = fmt.Fprint(w, "0000")
		default:
			_, _ = w.Write(body)
		}
	})
	first := commitNoise(t, dir, 100)
	cache := filepath.Join(t.TempDir(), "cache")
	s := openMirror(t, url, cache, 0)
	hostile <- true
	err := s.Fetch(t.Context(), "main")
	if err == nil || errors.Is(err, gitrepo.ErrUnusable) != unusable || !strings.Contains(err.Error(), want) {
		t.Fatalf("unusable %v, %v; want %v, %s", errors.Is(err, gitrepo.ErrUnusable), err, unusable, want)
	}
	var bad *gitrepo.UnusableBranch
	if unusable && (!errors.As(err, &bad) || bad.Branch != "main" || bad.Commit.String() != first) {
		t.Errorf("of branch %+v, want main at %s", bad, first)
	}
	if left := unfinished(t, cache); len(left) > 0 {
		t.Errorf("files left: %q", left)
	}
	if packs, err := filepath.Glob(filepath.Join(cache, "objects", "pack", "*.pack")); err != nil || len(packs) > 0 {
		t.Errorf("packs left: %q, %v", packs, err)
	}
	if unusable { // the same commit is not fetched again
		if again := s.Fetch(t.Context(), "main"); again == nil || again.Error() != err.Error() {
			t.Errorf("again: %v, want %v", again, err)
		}
		git(t, dir, "update-ref", "refs/heads/main", git(t, dir, "commit-tree", "-p", first, "-m", "next", first+"^{tree}"))
	}
	sync(t, s, "main")
	if have, want := head(t, s, "main").String(), git(t, dir, "rev-parse", "main"); have != want {
		t.Errorf("head %s, want %s", have, want)
	}
}

// TestEndlessPack checks that a fetch fails at its limit and leaves no file.
func TestEndlessPack(t *testing.T) {
	t.Parallel()
	dir, url := serve(t)
	commitNoise(t, dir, 2<<20)
	for name, cache := range map[string]string{"memory": "", "disk": filepath.Join(t.TempDir(), "cache")} {
		s, err := gitrepo.Open(gitrepo.Config{URL: url, Cache: cache, MaxFetch: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Fetch(t.Context(), "main"); !errors.Is(err, gitrepo.ErrUnusable) || !strings.Contains(err.Error(), "the server sends more than 1048576 bytes") {
			t.Errorf("%s: %v", name, err)
		}
		if left := unfinished(t, cache); len(left) > 0 {
			t.Errorf("%s: files left: %q", name, left)
		}
		if s, err = gitrepo.Open(gitrepo.Config{URL: url, Cache: cache, MaxFetch: 3 << 20}); err != nil {
			t.Fatal(err)
		}
		sync(t, s, "main")
		head(t, s, "main")
	}
}

// TestLocalBombs checks that the size of an object on this machine is checked before it is read.
func TestLocalBombs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fill func(p *pack) (kind byte, content []byte)
		want string
	}{
		"delta with a large result": {func(p *pack) (byte, []byte) { return packOffset, delta(1 << 40) }, "needs 1099511627776 bytes: at most "},
		"delta of a commit":         {func(p *pack) (byte, []byte) { return packOffset, delta(2 << 20) }, "needs 2097152 bytes: at most 1048576 are read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := workTree(t)
			p := &pack{}
			base := p.add(packCommit, 1, nil, []byte("x"))
			kind, content := test.fill(p)
			at := p.add(kind, uint64(len(content)), encodeOffset(12+p.Len()-base), content)
			hash := strings.Repeat("5", 40)
			putPack(t, work, p.finish(p.count), hash, at)
			put(t, work, ".git/refs/heads/main", hash+"\n")
			s := open(t, work)
			sync(t, s)
			if _, err := s.Subject(head(t, s, "main")); !errors.Is(err, gitrepo.ErrUnusable) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// putPack writes a pack into a repository, with an index of one object. git does not index such a
// pack.
func putPack(t *testing.T, work string, raw []byte, hash string, offset int) {
	t.Helper()
	name := fmt.Sprintf(".git/objects/pack/pack-%x", raw[len(raw)-20:])
	id := plumbing.NewHash(hash)
	index := []byte{0xff, 't', 'O', 'c', 0, 0, 0, 2}
	for first := range 256 {
		count := uint32(0)
		if first >= int(id[0]) {
			count = 1
		}
		index = binary.BigEndian.AppendUint32(index, count)
	}
	index = append(index, id[:]...)
	index = append(index, 0, 0, 0, 0) // CRC-32
	index = binary.BigEndian.AppendUint32(index, uint32(offset))
	index = append(index, raw[len(raw)-20:]...)
	sum := sha1.Sum(index)
	put(t, work, name+".pack", string(raw))
	put(t, work, name+".idx", string(append(index, sum[:]...)))
}
