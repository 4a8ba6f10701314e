package trace

import (
	"encoding/binary"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableOwned has the kernel remove a table when the socket that made it is closed, however
// the process ends (linux/netfilter/nf_tables.h, NFT_TABLE_F_OWNER, since Linux 5.12).
// github.com/google/nftables v0.3.0 does not send flags of tables, so what is needed
// is put together here.
const tableOwned = 0x2

// hook is where a base chain is.
type hook struct {
	number   uint32
	priority int32
}

// batch gathers the messages of one transaction.
type batch struct{ messages []netlink.Message }

func (b *batch) add(kind uint16, flags netlink.HeaderFlags, encode func(*netlink.AttributeEncoder)) {
	attrs := netlink.NewAttributeEncoder()
	attrs.ByteOrder = binary.BigEndian
	encode(attrs)
	body, err := attrs.Encode()
	if err != nil {
		panic("trace: encode nf_tables message: " + err.Error()) // of constants
	}
	b.messages = append(b.messages, netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind),
			Flags: netlink.Request | netlink.Acknowledge | flags,
		},
		Data: append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, body...),
	})
}

func (b *batch) table() {
	b.add(unix.NFT_MSG_NEWTABLE, netlink.Create|netlink.Excl, func(a *netlink.AttributeEncoder) {
		a.String(unix.NFTA_TABLE_NAME, Table)
		a.Uint32(unix.NFTA_TABLE_FLAGS, tableOwned)
	})
}

func (b *batch) chain(name string, at *hook) {
	b.add(unix.NFT_MSG_NEWCHAIN, netlink.Create, func(a *netlink.AttributeEncoder) {
		a.String(unix.NFTA_CHAIN_TABLE, Table)
		a.String(unix.NFTA_CHAIN_NAME, name)
		if at == nil {
			return
		}
		a.Nested(unix.NFTA_CHAIN_HOOK, func(h *netlink.AttributeEncoder) error {
			h.Uint32(unix.NFTA_HOOK_HOOKNUM, at.number)
			h.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(at.priority))
			return nil
		})
		a.String(unix.NFTA_CHAIN_TYPE, "filter")
	})
}

func (b *batch) rule(chain string, expressions ...expr.Any) {
	b.add(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, func(a *netlink.AttributeEncoder) {
		a.String(unix.NFTA_RULE_TABLE, Table)
		a.String(unix.NFTA_RULE_CHAIN, chain)
		a.Nested(unix.NFTA_RULE_EXPRESSIONS, func(list *netlink.AttributeEncoder) error {
			for _, e := range expressions {
				raw, err := expr.Marshal(unix.NFPROTO_INET, e)
				if err != nil {
					return err
				}
				list.Bytes(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, raw)
			}
			return nil
		})
	})
}

// end gives the transaction.
func (b *batch) end() []netlink.Message {
	frame := func(kind uint16) netlink.Message {
		// The resource is the subsystem, in network order.
		return netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request},
			Data:   []byte{unix.NFPROTO_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES},
		}
	}
	out := append([]netlink.Message{frame(unix.NFNL_MSG_BATCH_BEGIN)}, b.messages...)
	return append(out, frame(unix.NFNL_MSG_BATCH_END))
}
