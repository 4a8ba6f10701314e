package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// nftBatch is one transaction: the kernel takes all of it or nothing.
type nftBatch struct {
	nftAttrs
	starts []int // of messages, by sequence number from 0 (the begin mark)
	last   int   // start of the latest message that is not a mark
}

// nftFault is one refused message of a transaction.
type nftFault struct {
	message int   // as given by nftBatch.message
	offset  int   // of the refused attribute from the start of the message; 0 = unknown
	err     error // a unix.Errno, with the kernel's words where it has some
}

// nftRefused is the error of a transaction that was not taken.
type nftRefused struct{ faults []nftFault }

func (e *nftRefused) Error() string {
	if len(e.faults) == 0 {
		return "nf_tables did not confirm the transaction"
	}
	text := "nf_tables refused the transaction: " + e.faults[0].err.Error()
	if n := len(e.faults) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

func (e *nftRefused) Unwrap() []error {
	var errs []error
	for _, f := range e.faults {
		errs = append(errs, f.err)
	}
	return errs
}

// nftNewBatch begins a transaction that the kernel takes only while the ruleset is of
// a generation; 0 = of any.
func nftNewBatch(generation uint32) *nftBatch {
	b := &nftBatch{}
	b.mark(unix.NFNL_MSG_BATCH_BEGIN, func() {
		if generation != 0 {
			b.u32(unix.NFNL_BATCH_GENID, generation)
		}
	})
	return b
}

// nftGet makes a request that reads; attributes may be nil.
func nftGet(typ uint16, dump bool, attributes func(*nftAttrs)) *nftBatch {
	b := &nftBatch{}
	flags := uint16(0)
	if dump {
		flags = unix.NLM_F_DUMP
	}
	b.message(typ, flags, func() {
		if attributes != nil {
			attributes(&b.nftAttrs)
		}
	})
	return b
}

func (b *nftBatch) header(typ, flags uint16, family byte, resource uint16) int {
	at := len(b.buf)
	b.buf = append(b.buf, make([]byte, nftHeader)...)
	binary.NativeEndian.PutUint16(b.buf[at+4:], typ)
	binary.NativeEndian.PutUint16(b.buf[at+6:], flags|unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(b.buf[at+8:], uint32(len(b.starts)))
	b.starts = append(b.starts, at)
	b.buf = append(b.buf, family, unix.NFNETLINK_V0)
	b.buf = binary.BigEndian.AppendUint16(b.buf, resource)
	return at
}

func (b *nftBatch) mark(typ uint16, inside func()) {
	at := b.header(typ, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	inside()
	binary.NativeEndian.PutUint32(b.buf[at:], uint32(len(b.buf)-at))
}

// message appends one message for family inet with the attributes that inside
// writes, and gives its number.
func (b *nftBatch) message(typ, flags uint16, inside func()) int {
	b.last = b.header(unix.NFNL_SUBSYS_NFTABLES<<8|typ, flags, unix.NFPROTO_INET, 0)
	inside()
	binary.NativeEndian.PutUint32(b.buf[b.last:], uint32(len(b.buf)-b.last))
	return len(b.starts) - 1
}

// expiring writes an element of a set that the kernel takes out when its time is over, at
// least 1 ms.
func (b *nftBatch) expiring(key []byte, left time.Duration) {
	b.nest(unix.NFTA_LIST_ELEM, func() {
		b.data(unix.NFTA_SET_ELEM_KEY, key)
		b.bytes(unix.NFTA_SET_ELEM_TIMEOUT, binary.BigEndian.AppendUint64(nil, uint64(left.Milliseconds())))
	})
}

// setElements writes a message about elements of a set, which inside lists.
func (b *nftBatch) setElements(typ, flags uint16, table, set string, inside func()) {
	b.message(typ, flags, func() {
		b.text(unix.NFTA_SET_ELEM_LIST_TABLE, table)
		b.text(unix.NFTA_SET_ELEM_LIST_SET, set)
		b.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, inside)
	})
}

// nft works in the namespace with a socket of its own.
func (ns *Namespace) nft(work func(*nftSocket) error) error {
	return ns.inside(func() error {
		s, err := nftOpen()
		if err != nil {
			return err
		}
		defer func() { _ = s.close() }()
		return work(s)
	})
}

// nftCommit makes one transaction in the namespace.
func (ns *Namespace) nftCommit(write func(*nftBatch)) error {
	return ns.nft(func(s *nftSocket) error {
		b := nftNewBatch(0)
		write(b)
		return s.commit(b)
	})
}

// overtaken reports whether the ruleset was of another generation than the transaction
// was made for (nfnetlink_rcv_batch answers ERESTART to the begin mark).
func (e *nftRefused) overtaken() bool {
	return len(e.faults) == 1 && e.faults[0].message == 0 && errors.Is(e.faults[0].err, unix.ERESTART)
}

// commit sends the transaction. When it is refused nothing of it was done and
// the error is a *nftRefused.
func (s *nftSocket) commit(b *nftBatch) error {
	if len(b.starts) < 2 {
		return nil
	}
	// One acknowledgement is enough: the kernel answers errors of any message
	// without being asked, and the last one's success only after the commit.
	last := len(b.starts) - 1
	flags := binary.NativeEndian.Uint16(b.buf[b.last+6:])
	binary.NativeEndian.PutUint16(b.buf[b.last+6:], flags|unix.NLM_F_ACK)
	b.mark(unix.NFNL_MSG_BATCH_END, func() {})
	base := s.seq + 1
	s.seq += uint32(len(b.starts))
	for i, at := range b.starts {
		binary.NativeEndian.PutUint32(b.buf[at+8:], base+uint32(i))
	}
	if err := s.send(b.buf); err != nil {
		return err
	}
	// The kernel has handled the whole transaction before send returned, so all answers wait
	// already.
	refused := &nftRefused{}
	confirmed := false
	for {
		n, err := s.receive(unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return err
		}
		fault, ok := nftAnswer(s.buf[:n], base)
		switch {
		case !ok:
		case fault.err != nil:
			refused.faults = append(refused.faults, fault)
		case fault.message == last:
			confirmed = true
		}
	}
	if confirmed && len(refused.faults) == 0 {
		return nil
	}
	return refused
}

// nftAnswer reads one acknowledgement or error; a nil err is success.
func nftAnswer(b []byte, base uint32) (nftFault, bool) {
	if len(b) < nftHeader+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return nftFault{}, false
	}
	seq := binary.NativeEndian.Uint32(b[8:])
	if seq < base {
		return nftFault{}, false
	}
	fault := nftFault{message: int(seq - base), err: nftErrno(b[nftHeader:])}
	tlvs := b[min(len(b), nftHeader+4+nftHeader):]
	if fault.err == nil || binary.NativeEndian.Uint16(b[6:])&unix.NLM_F_ACK_TLVS == 0 {
		return fault, true
	}
	if offset := nftFind(tlvs, unix.NLMSGERR_ATTR_OFFS); len(offset) == 4 {
		fault.offset = int(binary.NativeEndian.Uint32(offset))
	}
	if text := nftText(nftFind(tlvs, unix.NLMSGERR_ATTR_MSG)); text != "" {
		fault.err = fmt.Errorf("%s: %w", text, fault.err)
	}
	return fault, true
}
