package nftables

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Flags and attributes of nf_tables.h that golang.org/x/sys/unix lacks.
const (
	SetConcatenation = 0x80 // NFT_SET_CONCAT: keys are ranges in several dimensions

	setDescSize   = 1  // NFTA_SET_DESC_SIZE
	setDescConcat = 2  // NFTA_SET_DESC_CONCAT
	setFieldLen   = 1  // NFTA_SET_FIELD_LEN
	setHandle     = 16 // NFTA_SET_HANDLE
	setExpr       = 17 // NFTA_SET_EXPR
	elemKeyEnd    = 10 // NFTA_SET_ELEM_KEY_END
)

// SetName names a set or map.
type SetName struct {
	Table TableName
	Name  string
}

// Set is a set or map. Types are numbers of nft(8), for its listing only; the kernel uses
// the sizes.
type Set struct {
	SetName
	ID       uint32 // of a set in its transaction, for elements and rules that refer to it
	Flags    uint32 // NFT_SET_*, SetConcatenation
	Key      Type
	Data     Type     // of a map
	Size     uint32   // limit of elements; 0 = unlimited
	Fields   []uint32 // sizes of the parts of a key with SetConcatenation, bytes; write only
	ElemExpr string   // expression of each element that has no options, such as counter; empty = none
	UserData []byte   // for nft(8): package userdata of github.com/google/nftables
	Handle   uint64   // read only
}

// Type is a type of nft(8) and its size in bytes.
type Type struct{ Number, Size uint32 }

// Element is an element of a set or map.
type Element struct {
	Key         []byte // nil = the catch-all element
	KeyEnd      []byte // last key of a range in a set with SetConcatenation
	IntervalEnd bool   // the key is the first one after an interval
	Data        []byte // of a map
	Verdict     *Verdict
	Timeout     time.Duration
	Expires     time.Duration // read only
	Counter     *Counter      // read only
}

// Verdict is the data of a verdict map.
type Verdict struct {
	Code  int32 // NF_ACCEPT, NFT_GOTO, ...
	Chain string
}

// AddSet adds a set or map.
func (b *Batch) AddSet(s Set) {
	b.message(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, s.Table.Family, func() {
		a := &b.attrs
		a.String(unix.NFTA_SET_TABLE, s.Table.Name)
		a.String(unix.NFTA_SET_NAME, s.Name)
		a.Uint32(unix.NFTA_SET_FLAGS, s.Flags)
		a.Uint32(unix.NFTA_SET_KEY_TYPE, s.Key.Number)
		a.Uint32(unix.NFTA_SET_KEY_LEN, s.Key.Size)
		if s.Flags&unix.NFT_SET_MAP != 0 {
			a.Uint32(unix.NFTA_SET_DATA_TYPE, s.Data.Number)
			a.Uint32(unix.NFTA_SET_DATA_LEN, s.Data.Size)
		}
		a.Uint32(unix.NFTA_SET_ID, s.ID)
		if s.Size != 0 || len(s.Fields) > 0 {
			a.Nest(unix.NFTA_SET_DESC, func() { s.describe(a) })
		}
		if s.ElemExpr != "" {
			a.Nest(setExpr, func() { a.String(unix.NFTA_EXPR_NAME, s.ElemExpr) })
		}
		if s.UserData != nil {
			a.Bytes(unix.NFTA_SET_USERDATA, s.UserData)
		}
	})
}

func (s Set) describe(a *Attributes) {
	if s.Size != 0 {
		a.Uint32(setDescSize, s.Size)
	}
	if len(s.Fields) == 0 {
		return
	}
	a.Nest(setDescConcat, func() {
		for _, size := range s.Fields {
			a.Nest(unix.NFTA_LIST_ELEM, func() { a.Uint32(setFieldLen, size) })
		}
	})
}

// DeleteSet deletes a set or map that no rule uses.
func (b *Batch) DeleteSet(s SetName) {
	b.message(unix.NFT_MSG_DELSET, 0, s.Table.Family, func() {
		b.attrs.String(unix.NFTA_SET_TABLE, s.Table.Name)
		b.attrs.String(unix.NFTA_SET_NAME, s.Name)
	})
}

// maxListSize is the size in bytes at which a message with elements ends. The length of an
// attribute has 16 bits, and one element stays far below the difference.
const maxListSize = 1 << 15

// AddElements adds elements to a set, in as many messages as they need, and returns the
// position of each. ID is the ID of a set of the same transaction, or 0.
func (b *Batch) AddElements(s SetName, id uint32, elements []Element) []Position {
	return b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s, id, elements)
}

// DeleteElements deletes elements, found by their keys, and returns the position of each.
func (b *Batch) DeleteElements(s SetName, elements []Element) []Position {
	return b.elements(unix.NFT_MSG_DELSETELEM, 0, s, 0, elements)
}

// DeleteAllElements empties a set.
func (b *Batch) DeleteAllElements(s SetName) {
	b.message(unix.NFT_MSG_DELSETELEM, 0, s.Table.Family, func() {
		b.attrs.String(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table.Name)
		b.attrs.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	})
}

func (b *Batch) elements(typ, flags uint16, s SetName, id uint32, elements []Element) []Position {
	positions := make([]Position, 0, len(elements))
	for len(elements) > 0 {
		number := len(b.messageStarts)
		b.message(typ, flags, s.Table.Family, func() {
			b.attrs.String(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table.Name)
			b.attrs.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
			if id != 0 {
				b.attrs.Uint32(unix.NFTA_SET_ELEM_LIST_SET_ID, id)
			}
			b.attrs.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
				// Both ends of an interval stay in one message.
				for len(elements) > 0 && (len(b.attrs.buf)-b.lastMessage < maxListSize || elements[0].IntervalEnd) {
					positions = append(positions, Position{number, len(b.attrs.buf) - b.lastMessage})
					elements[0].encode(&b.attrs)
					elements = elements[1:]
				}
			})
		})
	}
	return positions
}

func (e *Element) encode(a *Attributes) {
	start := a.open(unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED)
	if e.IntervalEnd {
		a.Uint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	a.data(unix.NFTA_SET_ELEM_KEY, e.Key)
	if e.KeyEnd != nil {
		a.data(elemKeyEnd, e.KeyEnd)
	}
	switch {
	case e.Verdict != nil:
		a.Nest(unix.NFTA_SET_ELEM_DATA, func() {
			a.Nest(unix.NFTA_DATA_VERDICT, func() {
				a.Uint32(unix.NFTA_VERDICT_CODE, uint32(e.Verdict.Code))
				a.String(unix.NFTA_VERDICT_CHAIN, e.Verdict.Chain)
			})
		})
	case e.Data != nil:
		a.data(unix.NFTA_SET_ELEM_DATA, e.Data)
	}
	if e.Timeout != 0 {
		a.Uint64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(e.Timeout.Milliseconds()))
	}
	a.close(start)
}

// Sets returns the sets and maps of a table; of all tables without a name.
func (c *Conn) Sets(t TableName) ([]Set, error) {
	var out []Set
	err := c.request(newRequest(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, t.Family, named(t)), func(family Family, attrs []byte) error {
		out = append(out, parseSet(family, attrs))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read sets: %w", err)
	}
	return out, nil
}

func parseSet(family Family, attrs []byte) Set {
	number := func(typ uint16) uint32 { return toUint32(find(attrs, typ)) }
	return Set{
		SetName:  SetName{TableName{family, toString(find(attrs, unix.NFTA_SET_TABLE))}, toString(find(attrs, unix.NFTA_SET_NAME))},
		Flags:    number(unix.NFTA_SET_FLAGS),
		Key:      Type{number(unix.NFTA_SET_KEY_TYPE), number(unix.NFTA_SET_KEY_LEN)},
		Data:     Type{number(unix.NFTA_SET_DATA_TYPE), number(unix.NFTA_SET_DATA_LEN)},
		Size:     toUint32(find(find(attrs, unix.NFTA_SET_DESC), setDescSize)),
		ElemExpr: parseExpression(find(attrs, setExpr)).Name,
		UserData: append([]byte(nil), find(attrs, unix.NFTA_SET_USERDATA)...),
		Handle:   toUint64(find(attrs, setHandle)),
	}
}

// Elements calls visit for each element of a set, in no order. The bytes of an element are
// only valid during the call. The error is unix.ENOENT, wrapped, if the set does not exist.
//
// A hash table that grows during the read orders its elements again, and the kernel does
// not report it as ErrInterrupted. A key that occurs twice then means that others are
// missing.
func (c *Conn) Elements(s SetName, visit func(Element) error) error {
	request := newRequest(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, s.Table.Family, func(a *Attributes) {
		a.String(unix.NFTA_SET_ELEM_LIST_TABLE, s.Table.Name)
		a.String(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	})
	err := c.request(request, func(_ Family, attrs []byte) error {
		return each(find(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(_ uint16, b []byte) error {
			e, err := parseElement(b)
			if err != nil {
				return err
			}
			return visit(e)
		})
	})
	if err != nil {
		return fmt.Errorf("read elements of %s: %w", s.Name, err)
	}
	return nil
}

func parseElement(b []byte) (Element, error) {
	var e Element
	err := each(b, func(typ uint16, value []byte) error {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.Key = find(value, unix.NFTA_DATA_VALUE)
		case elemKeyEnd:
			e.KeyEnd = find(value, unix.NFTA_DATA_VALUE)
		case unix.NFTA_SET_ELEM_FLAGS:
			e.IntervalEnd = toUint32(value)&unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_DATA:
			e.Data = find(value, unix.NFTA_DATA_VALUE)
			if verdict := find(value, unix.NFTA_DATA_VERDICT); verdict != nil {
				e.Verdict = &Verdict{
					Code: int32(toUint32(find(verdict, unix.NFTA_VERDICT_CODE))), Chain: toString(find(verdict, unix.NFTA_VERDICT_CHAIN)),
				}
			}
		case unix.NFTA_SET_ELEM_TIMEOUT:
			e.Timeout = milliseconds(value)
		case unix.NFTA_SET_ELEM_EXPIRATION:
			e.Expires = milliseconds(value)
		case unix.NFTA_SET_ELEM_EXPR:
			if counter, ok := parseExpression(value).Counter(); ok {
				e.Counter = &counter
			}
		}
		return nil
	})
	return e, err
}

func milliseconds(value []byte) time.Duration {
	return time.Duration(toUint64(value)) * time.Millisecond
}
