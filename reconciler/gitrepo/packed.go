package gitrepo

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// packed is a storage in files whose objects can be measured before they are read. go-git
// inflates an object, its delta and each base in memory first: a pack of a few kilobytes
// can hold gigabytes.
type packed struct {
	*filesystem.Storage
	objects string // folder
	packs   []string
	listed  bool
}

// maxChain is the longest chain of deltas. git packs at most 250 by default
// (pack.depth is at most 4095).
const maxChain = 4095

// check returns nil if reading an object takes at most limit bytes for the object itself,
// and at most maxObject for each base and each delta of it. plumbing.ErrObjectNotFound
// means that the object is not in this folder.
func (p *packed) check(hash Hash, limit int64) error {
	name := hash.String()
	f, err := os.Open(filepath.Join(p.objects, name[:2], name[2:]))
	if err == nil {
		defer func() { _ = f.Close() }()
		return checkLoose(f, hash, limit)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for again := range 2 {
		if !p.listed || again == 1 {
			// Another process may have packed the objects meanwhile.
			if err := p.list(); err != nil {
				return err
			}
		}
		for _, pack := range p.packs {
			offset, found, err := findOffset(pack+".idx", hash)
			if err != nil {
				return err
			}
			if found {
				if again == 1 {
					p.Reindex()
				}
				return checkPacked(pack, offset, hash, limit)
			}
		}
	}
	return plumbing.ErrObjectNotFound
}

func (p *packed) list() error {
	names, err := filepath.Glob(filepath.Join(p.objects, "pack", "pack-*.idx"))
	if err != nil {
		return err
	}
	p.packs, p.listed = nil, true
	for _, name := range names {
		p.packs = append(p.packs, strings.TrimSuffix(name, ".idx"))
	}
	return nil
}

// checkLoose reads the header of a loose object: its type, a space, its size and a zero.
func checkLoose(f *os.File, hash Hash, limit int64) error {
	z, err := zlib.NewReader(f)
	if err != nil {
		return fmt.Errorf("read object %s: %w", hash, err)
	}
	head := make([]byte, 32)
	n, err := io.ReadFull(z, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("read object %s: %w", hash, err)
	}
	var kind string
	var size int64
	if end := bytes.IndexByte(head[:n], 0); end < 0 {
		return fmt.Errorf("read object %s: it has no header", hash)
	} else if _, err := fmt.Sscanf(string(head[:end]), "%s %d", &kind, &size); err != nil {
		return fmt.Errorf("read object %s: %w", hash, err)
	}
	if size > limit {
		return tooLarge("object %s has %d bytes: at most %d are read", hash, size, limit)
	}
	return nil
}

// findOffset looks a hash up in the index of a pack (gitformat-pack(5), version 2).
func findOffset(index string, hash Hash) (offset int64, found bool, err error) {
	f, err := os.Open(index)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil // repacked meanwhile
	}
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = f.Close() }()
	const head, fan = 8, 256 * 4
	var table [head + fan]byte
	if _, err := f.ReadAt(table[:], 0); err != nil {
		return 0, false, fmt.Errorf("read %s: %w", index, err)
	}
	if !bytes.Equal(table[:head], []byte{0xff, 't', 'O', 'c', 0, 0, 0, 2}) {
		return 0, false, fmt.Errorf("read %s: not an index of version 2 (git -c pack.indexVersion=2 repack -ad writes one)", index)
	}
	upTo := func(first byte) int64 { return int64(binary.BigEndian.Uint32(table[head+4*int(first):])) }
	count, low, high := upTo(255), int64(0), upTo(hash[0])
	if hash[0] > 0 {
		low = upTo(hash[0] - 1)
	}
	var at int64 = -1
	for low < high {
		middle := (low + high) / 2
		var have Hash
		if _, err := f.ReadAt(have[:], head+fan+middle*int64(len(have))); err != nil {
			return 0, false, fmt.Errorf("read %s: %w", index, err)
		}
		switch bytes.Compare(have[:], hash[:]) {
		case 0:
			at = middle
			low = high
		case -1:
			low = middle + 1
		default:
			high = middle
		}
	}
	if at < 0 {
		return 0, false, nil
	}
	const large = 1 << 31
	offsets := head + fan + count*int64(len(hash)+4) // behind the hashes and checksums
	var short [4]byte
	if _, err := f.ReadAt(short[:], offsets+4*at); err != nil {
		return 0, false, fmt.Errorf("read %s: %w", index, err)
	}
	value := binary.BigEndian.Uint32(short[:])
	if value < large {
		return int64(value), true, nil
	}
	var long [8]byte
	if _, err := f.ReadAt(long[:], offsets+4*count+8*int64(value-large)); err != nil {
		return 0, false, fmt.Errorf("read %s: %w", index, err)
	}
	return int64(binary.BigEndian.Uint64(long[:])), true, nil
}

// checkPacked follows an object of a pack to the base of its deltas, and reads sizes only.
func checkPacked(pack string, offset int64, hash Hash, limit int64) error {
	f, err := os.Open(pack + ".pack")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var deltas int64
	for range maxChain {
		e, err := readEntryHeader(f, offset)
		if err != nil {
			return fmt.Errorf("read object %s of %s.pack: %w", hash, pack, err)
		}
		if e.size > limit {
			return tooLarge("object %s needs %d bytes: at most %d are read", hash, e.size, limit)
		}
		limit = maxObject // of a base
		// go-git has all deltas of a chain in memory at once.
		if deltas += e.delta; deltas > maxObject {
			return tooLarge("object %s needs deltas of %d bytes: at most %d are read", hash, deltas, maxObject)
		}
		switch {
		case e.base == 0 && e.ref.IsZero():
			return nil
		case e.base > 0:
			offset = e.base
		default:
			var found bool
			if offset, found, err = findOffset(pack+".idx", e.ref); err != nil || !found {
				return errors.Join(err, fmt.Errorf("read object %s of %s.pack: its base %s is missing", hash, pack, e.ref))
			}
		}
	}
	return tooLarge("object %s has a chain of more than %d deltas", hash, maxChain)
}

// packEntry is what the beginning of an object in a pack says.
type packEntry struct {
	size  int64 // of the object
	delta int64 // of its delta; 0 = it has none
	base  int64 // offset of the base; 0 = none, or ref names it
	ref   Hash
}

// readEntryHeader reads the beginning of an object in a pack (gitformat-pack(5)).
func readEntryHeader(f io.ReaderAt, offset int64) (packEntry, error) {
	const longest = 64 // of the numbers and the hash
	head := make([]byte, longest)
	n, err := f.ReadAt(head, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return packEntry{}, err
	}
	r := bytes.NewReader(head[:n])
	b, err := r.ReadByte()
	if err != nil {
		return packEntry{}, io.ErrUnexpectedEOF
	}
	kind, size := plumbing.ObjectType(b>>4&7), uint64(b&15)
	for shift := 4; b&0x80 != 0; shift += 7 {
		if b, err = r.ReadByte(); err != nil || shift > 56 {
			return packEntry{}, errors.New("its size is malformed")
		}
		size |= uint64(b&0x7f) << shift
	}
	e := packEntry{size: int64(size)}
	switch kind {
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
		return e, nil
	case plumbing.REFDeltaObject:
		if _, err := io.ReadFull(r, e.ref[:]); err != nil {
			return e, err
		}
	case plumbing.OFSDeltaObject:
		if b, err = r.ReadByte(); err != nil {
			return e, err
		}
		back := int64(b & 0x7f)
		for b&0x80 != 0 {
			if b, err = r.ReadByte(); err != nil || back > 1<<48 {
				return e, errors.New("the place of its base is malformed")
			}
			back = (back+1)<<7 | int64(b&0x7f)
		}
		if e.base = offset - back; e.base <= 0 || e.base >= offset {
			return e, errors.New("the place of its base is malformed")
		}
	default:
		return e, fmt.Errorf("its type %d is unknown", kind)
	}
	e.delta = e.size
	z, err := zlib.NewReader(io.NewSectionReader(f, offset+int64(n-r.Len()), 1<<62))
	if err != nil {
		return e, err
	}
	// A delta begins with the sizes of the base and of the result.
	sizes := make([]byte, 2*binary.MaxVarintLen64)
	n, err = io.ReadFull(z, sizes)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return e, err
	}
	_, first := binary.Uvarint(sizes[:n])
	if first <= 0 {
		return e, errors.New("its delta is malformed")
	}
	result, second := binary.Uvarint(sizes[first:n])
	if second <= 0 || result > 1<<62 {
		return e, errors.New("its delta is malformed")
	}
	e.size = int64(result)
	return e, nil
}
