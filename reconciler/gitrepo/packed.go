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

// packedStorage is a storage on disk that checks the size of an object before it reads the object.
// go-git inflates an object, its delta and each base in memory. A pack of a few kilobytes can
// inflate to gigabytes.
type packedStorage struct {
	*filesystem.Storage
	objectsDir  string // directory
	packs       []string
	packsListed bool
}

// maxDeltaChain is the maximum length of a chain of deltas. It is the maximum of pack.depth. git's
// default maximum is 250.
const maxDeltaChain = 4095

// checkSize returns an error if an object has more than limit bytes. Each of its bases, and all its
// deltas together, can have maxObject bytes. It returns plumbing.ErrObjectNotFound if the object is
// not in this directory.
func (p *packedStorage) checkSize(hash Hash, limit int64) error {
	name := hash.String()
	f, err := os.Open(filepath.Join(p.objectsDir, name[:2], name[2:]))
	if err == nil {
		defer func() { _ = f.Close() }()
		return checkLoose(f, hash, limit)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for attempt := range 2 {
		if !p.packsListed || attempt == 1 {
			// Another process may have packed the objects meanwhile.
			if err := p.listPacks(); err != nil {
				return err
			}
		}
		for _, pack := range p.packs {
			offset, found, err := findOffset(pack+".idx", hash)
			if err != nil {
				return err
			}
			if found {
				if attempt == 1 {
					p.Reindex()
				}
				return checkPacked(pack, offset, hash, limit)
			}
		}
	}
	return plumbing.ErrObjectNotFound
}

func (p *packedStorage) listPacks() error {
	names, err := filepath.Glob(filepath.Join(p.objectsDir, "pack", "pack-*.idx"))
	if err != nil {
		return err
	}
	p.packs, p.packsListed = nil, true
	for _, name := range names {
		p.packs = append(p.packs, strings.TrimSuffix(name, ".idx"))
	}
	return nil
}

// checkLoose checks the size in the header of a loose object. The header is type, space, size, zero
// byte.
func checkLoose(f *os.File, hash Hash, limit int64) error {
	z, err := zlib.NewReader(f)
	if err != nil {
		return fmt.Errorf("read object %s: %w", hash, err)
	}
	header := make([]byte, 32)
	n, err := io.ReadFull(z, header)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("read object %s: %w", hash, err)
	}
	var kind string
	var size int64
	if end := bytes.IndexByte(header[:n], 0); end < 0 {
		return fmt.Errorf("read object %s: it has no header", hash)
	} else if _, err := fmt.Sscanf(string(header[:end]), "%s %d", &kind, &size); err != nil {
		return fmt.Errorf("read object %s: %w", hash, err)
	}
	if size > limit {
		return tooLarge("object %s has %d bytes: at most %d are read", hash, size, limit)
	}
	return nil
}

// findOffset searches the index of a pack (gitformat-pack(5), version 2) for a hash.
func findOffset(index string, hash Hash) (offset int64, found bool, err error) {
	f, err := os.Open(index)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil // repacked meanwhile
	}
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = f.Close() }()
	const headerSize, fanoutSize = 8, 256 * 4
	var table [headerSize + fanoutSize]byte
	if _, err := f.ReadAt(table[:], 0); err != nil {
		return 0, false, fmt.Errorf("read %s: %w", index, err)
	}
	if !bytes.Equal(table[:headerSize], []byte{0xff, 't', 'O', 'c', 0, 0, 0, 2}) {
		return 0, false, fmt.Errorf("read %s: not an index of version 2 (git -c pack.indexVersion=2 repack -ad writes one)", index)
	}
	countUpTo := func(first byte) int64 {
		return int64(binary.BigEndian.Uint32(table[headerSize+4*int(first):]))
	}
	count, low, high := countUpTo(255), int64(0), countUpTo(hash[0])
	if hash[0] > 0 {
		low = countUpTo(hash[0] - 1)
	}
	var position int64 = -1
	for low < high {
		middle := (low + high) / 2
		var entry Hash
		if _, err := f.ReadAt(entry[:], headerSize+fanoutSize+middle*int64(len(entry))); err != nil {
			return 0, false, fmt.Errorf("read %s: %w", index, err)
		}
		switch bytes.Compare(entry[:], hash[:]) {
		case 0:
			position = middle
			low = high
		case -1:
			low = middle + 1
		default:
			high = middle
		}
	}
	if position < 0 {
		return 0, false, nil
	}
	const longOffsetFlag = 1 << 31
	offsets := headerSize + fanoutSize + count*int64(len(hash)+4) // after the hashes and checksums
	var offset32 [4]byte
	if _, err := f.ReadAt(offset32[:], offsets+4*position); err != nil {
		return 0, false, fmt.Errorf("read %s: %w", index, err)
	}
	value := binary.BigEndian.Uint32(offset32[:])
	if value < longOffsetFlag {
		return int64(value), true, nil
	}
	var offset64 [8]byte
	if _, err := f.ReadAt(offset64[:], offsets+4*count+8*int64(value-longOffsetFlag)); err != nil {
		return 0, false, fmt.Errorf("read %s: %w", index, err)
	}
	return int64(binary.BigEndian.Uint64(offset64[:])), true, nil
}

// checkPacked checks the sizes of an object in a pack, of its deltas and of their bases. It reads
// headers only.
func checkPacked(pack string, offset int64, hash Hash, limit int64) error {
	f, err := os.Open(pack + ".pack")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var deltas int64
	for range maxDeltaChain {
		e, err := readEntryHeader(f, offset)
		if err != nil {
			return fmt.Errorf("read object %s of %s.pack: %w", hash, pack, err)
		}
		if e.size > limit {
			return tooLarge("object %s needs %d bytes: at most %d are read", hash, e.size, limit)
		}
		limit = maxObject // of a base
		// go-git has all deltas of a chain in memory at once.
		if deltas += e.deltaSize; deltas > maxObject {
			return tooLarge("object %s needs deltas of %d bytes: at most %d are read", hash, deltas, maxObject)
		}
		switch {
		case e.baseOffset == 0 && e.baseHash.IsZero():
			return nil
		case e.baseOffset > 0:
			offset = e.baseOffset
		default:
			var found bool
			if offset, found, err = findOffset(pack+".idx", e.baseHash); err != nil || !found {
				return errors.Join(err, fmt.Errorf("read object %s of %s.pack: its base %s is missing", hash, pack, e.baseHash))
			}
		}
	}
	return tooLarge("object %s has a chain of more than %d deltas", hash, maxDeltaChain)
}

// packEntry is the decoded header of an object in a pack.
type packEntry struct {
	size       int64 // of the object after its deltas
	deltaSize  int64 // of its delta; 0 = none
	baseOffset int64 // offset of the base; 0 = none, or baseHash identifies it
	baseHash   Hash
}

// readEntryHeader reads the header of an object in a pack (gitformat-pack(5)).
func readEntryHeader(f io.ReaderAt, offset int64) (packEntry, error) {
	const maxHeaderSize = 64 // of the numbers and the hash
	header := make([]byte, maxHeaderSize)
	n, err := f.ReadAt(header, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return packEntry{}, err
	}
	r := bytes.NewReader(header[:n])
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
		if _, err := io.ReadFull(r, e.baseHash[:]); err != nil {
			return e, err
		}
	case plumbing.OFSDeltaObject:
		if b, err = r.ReadByte(); err != nil {
			return e, err
		}
		distance := int64(b & 0x7f)
		for b&0x80 != 0 {
			if b, err = r.ReadByte(); err != nil || distance > 1<<48 {
				return e, errors.New("the place of its base is malformed")
			}
			distance = (distance+1)<<7 | int64(b&0x7f)
		}
		if e.baseOffset = offset - distance; e.baseOffset <= 0 || e.baseOffset >= offset {
			return e, errors.New("the place of its base is malformed")
		}
	default:
		return e, fmt.Errorf("its type %d is unknown", kind)
	}
	e.deltaSize = e.size
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
	_, baseSizeLen := binary.Uvarint(sizes[:n])
	if baseSizeLen <= 0 {
		return e, errors.New("its delta is malformed")
	}
	resultSize, resultSizeLen := binary.Uvarint(sizes[baseSizeLen:n])
	if resultSizeLen <= 0 || resultSize > 1<<62 {
		return e, errors.New("its delta is malformed")
	}
	e.size = int64(resultSize)
	return e, nil
}
