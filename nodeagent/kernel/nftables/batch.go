package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Batch is one transaction: the kernel applies all of its messages or none.
type Batch struct {
	attrs         Attributes
	messageStarts []int // of messages in the buffer, by number; the first one begins the batch
	lastMessage   int   // start of the latest message that an object added
}

// NewBatch starts a transaction that the kernel applies only if the ruleset has the given
// generation. 0 is any generation.
func NewBatch(generation uint32) *Batch {
	b := &Batch{}
	b.batchMessage(unix.NFNL_MSG_BATCH_BEGIN, func() {
		if generation != 0 {
			b.attrs.Uint32(unix.NFNL_BATCH_GENID, generation)
		}
	})
	return b
}

// Position is the place of an object in a Batch.
type Position struct {
	Message int // its number
	Offset  int // of the object's attribute from the start of the message, bytes; 0 = the whole message
}

// Fault is one refused message of a transaction.
type Fault struct {
	Position       // the offset is 0 if the kernel reports no attribute
	Err      error // a unix.Errno, wrapped if the kernel sent an explanation
}

// RefusedError is the error of a transaction that the kernel refused.
type RefusedError struct{ Faults []Fault }

func (e *RefusedError) Error() string {
	if len(e.Faults) == 0 {
		return "nf_tables did not confirm the transaction"
	}
	text := "nf_tables refused the transaction: " + e.Faults[0].Err.Error()
	if n := len(e.Faults) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// Unwrap returns the errors of all faults.
func (e *RefusedError) Unwrap() []error {
	var errs []error
	for _, f := range e.Faults {
		errs = append(errs, f.Err)
	}
	return errs
}

// Stale reports whether the ruleset no longer had the generation of the transaction
// (nfnetlink_rcv_batch answers ERESTART to the first message).
func (e *RefusedError) Stale() bool {
	return len(e.Faults) == 1 && e.Faults[0].Message == 0 && errors.Is(e.Faults[0].Err, unix.ERESTART)
}

// newRequest returns a message of its own that reads; add may be nil.
func newRequest(typ, flags uint16, family Family, add func(*Attributes)) *Batch {
	b := &Batch{}
	b.message(typ, flags, family, func() {
		if add != nil {
			add(&b.attrs)
		}
	})
	return b
}

func (b *Batch) header(typ, flags uint16, family Family, resource uint16) int {
	start := len(b.attrs.buf)
	buf := append(b.attrs.buf, make([]byte, headerSize)...)
	binary.NativeEndian.PutUint16(buf[start+4:], typ)
	binary.NativeEndian.PutUint16(buf[start+6:], flags|unix.NLM_F_REQUEST)
	buf = append(buf, byte(family), unix.NFNETLINK_V0)
	b.attrs.buf = binary.BigEndian.AppendUint16(buf, resource)
	b.messageStarts = append(b.messageStarts, start)
	return start
}

// batchMessage adds the first or the last message of the batch.
func (b *Batch) batchMessage(typ uint16, addAttributes func()) {
	b.setLength(b.header(typ, 0, FamilyUnspecified, unix.NFNL_SUBSYS_NFTABLES), addAttributes)
}

// message adds a message with the attributes that inside adds, and returns its number.
func (b *Batch) message(typ, flags uint16, family Family, addAttributes func()) int {
	b.lastMessage = b.header(unix.NFNL_SUBSYS_NFTABLES<<8|typ, flags, family, 0)
	b.setLength(b.lastMessage, addAttributes)
	return len(b.messageStarts) - 1
}

func (b *Batch) setLength(start int, addAttributes func()) {
	addAttributes()
	binary.NativeEndian.PutUint32(b.attrs.buf[start:], uint32(len(b.attrs.buf)-start))
}

// finish ends the batch and numbers its messages after seq. It returns the number of the
// message that the kernel acknowledges, and the sequence number of the first one.
func (b *Batch) finish(seq uint32) (last int, base uint32) {
	buf := b.attrs.buf
	// One acknowledgement is enough: the kernel reports the error of any message without a
	// request, and the success of the last one only after the commit.
	last = len(b.messageStarts) - 1
	flags := binary.NativeEndian.Uint16(buf[b.lastMessage+6:])
	binary.NativeEndian.PutUint16(buf[b.lastMessage+6:], flags|unix.NLM_F_ACK)
	b.batchMessage(unix.NFNL_MSG_BATCH_END, func() {})
	base = seq + 1
	for i, start := range b.messageStarts {
		binary.NativeEndian.PutUint32(b.attrs.buf[start+8:], base+uint32(i))
	}
	return last, base
}

// parseFault decodes one acknowledgement (Err is nil) or error.
func parseFault(b []byte, base uint32) (Fault, bool) {
	if len(b) < headerSize+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return Fault{}, false
	}
	seq := binary.NativeEndian.Uint32(b[8:])
	if seq < base {
		return Fault{}, false
	}
	fault := Fault{Position: Position{Message: int(seq - base)}, Err: parseErrno(b[headerSize:])}
	extended := b[min(len(b), headerSize+4+headerSize):]
	if fault.Err == nil || binary.NativeEndian.Uint16(b[6:])&unix.NLM_F_ACK_TLVS == 0 {
		return fault, true
	}
	if offset := find(extended, unix.NLMSGERR_ATTR_OFFS); len(offset) == 4 {
		fault.Offset = int(binary.NativeEndian.Uint32(offset))
	}
	if text := toString(find(extended, unix.NLMSGERR_ATTR_MSG)); text != "" {
		fault.Err = fmt.Errorf("%s: %w", text, fault.Err)
	}
	return fault, true
}

func parseErrno(body []byte) error {
	if len(body) < 4 {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(body)); code < 0 {
		return unix.Errno(-code)
	}
	return nil
}
