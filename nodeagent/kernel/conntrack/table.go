package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Messages of ctnetlink.
const (
	msgNew    = 0
	msgGet    = 1
	msgDelete = 2
)

// listFlows calls visit for every TCP and UDP flow of both families, with the same variable each
// time. The kernel can filter a dump by exact addresses, but not by prefixes. So it lists all
// flows, and they are read as a stream. For each dump, the kernel walks all buckets of the
// table (262 144 on a host with more than 4 GiB, for all network namespaces together). So one
// dump for both families costs half of two.
func listFlows(ctx context.Context, visit func(*Flow)) error {
	var f Flow
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|msgGet, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	err := request.ExecuteIter(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_CTNETLINK<<8|msgNew, func(raw []byte) bool {
		ok := false
		if f, ok = parse(raw); ok && f.zone == 0 {
			visit(&f)
		}
		return ctx.Err() == nil
	})
	// An interrupted dump may lack entries that moved while the table grew. A later round finds
	// them.
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		return fmt.Errorf("list conntrack entries: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("list conntrack entries: %w", err)
	}
	return nil
}

// deleteEntry deletes one entry. It skips an entry that is missing or was recreated since the
// listing.
func deleteEntry(f *Flow) error {
	family := uint8(unix.AF_INET)
	if f.Orig.From.Addr().Is6() {
		family = unix.AF_INET6
	}
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|msgDelete, unix.NLM_F_ACK)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	request.AddRawData(f.entryAttributes())
	if _, err := request.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete conntrack entry %s -> %s: %w", f.Orig.From, f.Orig.To, err)
	}
	return nil
}

// entryAttributes returns the attributes that identify one entry.
func (f *Flow) entryAttributes() []byte {
	source, destination := uint16(1), uint16(2)
	if f.Orig.From.Addr().Is6() {
		source, destination = 3, 4
	}
	ip := attribute(source, f.Orig.From.Addr().AsSlice())
	ip = append(ip, attribute(destination, f.Orig.To.Addr().AsSlice())...)
	proto := attribute(ctaProtoNum, []byte{f.Protocol})
	proto = append(proto, attribute(ctaProtoSrcPort, binary.BigEndian.AppendUint16(nil, f.Orig.From.Port()))...)
	proto = append(proto, attribute(ctaProtoDstPort, binary.BigEndian.AppendUint16(nil, f.Orig.To.Port()))...)
	tuple := append(attribute(unix.NLA_F_NESTED|ctaTupleIP, ip), attribute(unix.NLA_F_NESTED|ctaTupleProto, proto)...)
	return append(attribute(unix.NLA_F_NESTED|ctaTupleOrig, tuple), attribute(ctaID, binary.BigEndian.AppendUint32(nil, f.id))...)
}

// attribute encodes one netlink attribute, padded.
func attribute(kind uint16, value []byte) []byte {
	out := make([]byte, unix.SizeofNlAttr, unix.SizeofNlAttr+len(value)+3)
	binary.NativeEndian.PutUint16(out, uint16(unix.SizeofNlAttr+len(value)))
	binary.NativeEndian.PutUint16(out[2:], kind)
	out = append(out, value...)
	return append(out, make([]byte, -len(out)&3)...)
}

// timeouts are the kernel's timeouts. They determine the time of an entry's last packet.
type timeouts struct {
	established, udp, stream time.Duration
}

func readTimeouts() (t timeouts, err error) {
	readTimeout := func(name string) time.Duration {
		raw, readErr := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_" + name)
		if readErr == nil {
			var seconds int
			if seconds, readErr = strconv.Atoi(strings.TrimSpace(string(raw))); readErr == nil {
				return time.Duration(seconds) * time.Second
			}
		}
		err = errors.Join(err, fmt.Errorf("read conntrack timeout: %w", readErr))
		return 0
	}
	t = timeouts{established: readTimeout("tcp_timeout_established"), udp: readTimeout("udp_timeout"), stream: readTimeout("udp_timeout_stream")}
	return t, err
}

// idle returns the time since the last packet of a flow. It reports false if that is unknown.
// If single flows have a custom timeout, the result may be too large. Then the flow is
// refreshed or purged, which does no harm.
func (t timeouts) idle(flow *Flow) (time.Duration, bool) {
	switch {
	case flow.Protocol == unix.IPPROTO_TCP && flow.State == tcpEstablished:
		return max(t.established-flow.ExpiresIn, 0), true
	case flow.Protocol == unix.IPPROTO_UDP && flow.Status&statusAssured != 0:
		return max(t.stream-flow.ExpiresIn, 0), true
	case flow.Protocol == unix.IPPROTO_UDP:
		return max(t.udp-flow.ExpiresIn, 0), true
	default:
		return 0, false
	}
}
