package inventory

import (
	"encoding/json"
	"strconv"
	"strings"
)

// NFTObject is one object of a ruleset (libnftables-json(5)). One field is not nil.
type NFTObject struct {
	Metainfo *NFTMetainfo `json:"metainfo,omitempty"`
	Table    *NFTTable    `json:"table,omitempty"`
	Chain    *NFTChain    `json:"chain,omitempty"`
	Rule     *NFTRule     `json:"rule,omitempty"`
	Set      *NFTSet      `json:"set,omitempty"`
	Map      *NFTSet      `json:"map,omitempty"`
}

// NFTMetainfo is the first object of a ruleset.
type NFTMetainfo struct {
	SchemaVersion int `json:"json_schema_version"`
}

// NFTTable is a table of nftables, and so of iptables-nft.
type NFTTable struct {
	Family string `json:"family"` // ip, ip6, inet, arp, bridge or netdev
	Name   string `json:"name"`
	Handle uint64 `json:"handle"`
}

// NFTChain is a chain. nft(8) does not list the number of rules.
type NFTChain struct {
	Family string `json:"family"`
	Table  string `json:"table"`
	Name   string `json:"name"`
	Handle uint64 `json:"handle"`
	Dev    string `json:"dev,omitempty"`
	Type   string `json:"type,omitempty"` // set in base chains, like the next three
	Hook   string `json:"hook,omitempty"`
	Prio   *int   `json:"prio,omitempty"`
	Policy string `json:"policy,omitempty"` // accept or drop
	Rules  int    `json:"rules"`
}

// NFTRule is a rule of table inet hawser. Instead of its expressions it has the agent's digest,
// in hexadecimal. A rule of another program has none.
type NFTRule struct {
	Family string `json:"family"`
	Table  string `json:"table"`
	Chain  string `json:"chain"`
	Handle uint64 `json:"handle"`
	Digest string `json:"digest"`
}

// NFTSet is a set or map of table inet hawser. Sets that rules fill have no elements here.
type NFTSet struct {
	Family string         `json:"family"`
	Name   string         `json:"name"`
	Table  string         `json:"table"`
	Type   NFTType        `json:"type"`
	Handle uint64         `json:"handle"`
	Map    string         `json:"map,omitempty"` // type of the data of a map
	Size   uint32         `json:"size,omitempty"`
	Flags  []string       `json:"flags,omitempty"`
	Elem   []NFTValue     `json:"elem,omitempty"`
	Stmt   []NFTStatement `json:"stmt,omitempty"`
}

// NFTType is the type of a key, with several parts if it is a concatenation.
type NFTType []string

// MarshalJSON writes a string, or a list of them.
func (t NFTType) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// UnmarshalJSON reads the output of MarshalJSON.
func (t *NFTType) UnmarshalJSON(b []byte) error {
	if strings.HasPrefix(string(b), "[") {
		return json.Unmarshal(b, (*[]string)(t))
	}
	*t = make(NFTType, 1)
	return json.Unmarshal(b, &(*t)[0])
}

// NFTStatement is a stateful statement of each element of a set.
type NFTStatement struct {
	Counter Null `json:"counter,omitzero"`
}

// NFTValue is an element of a set, a key or a value. One field is set.
type NFTValue struct {
	Text   string      `json:"-"`
	Number *uint64     `json:"-"`
	Pair   []NFTValue  `json:"-"` // key and value of an element of a map
	Concat []NFTValue  `json:"concat,omitempty"`
	Range  []NFTValue  `json:"range,omitempty"` // first and last
	Prefix *NFTPrefix  `json:"prefix,omitempty"`
	Goto   *NFTGoto    `json:"goto,omitempty"`
	Elem   *NFTElement `json:"elem,omitempty"`
}

// NFTPrefix is a prefix of addresses.
type NFTPrefix struct {
	Addr string `json:"addr"`
	Len  int    `json:"len"`
}

// NFTGoto is a verdict.
type NFTGoto struct {
	Target string `json:"target"`
}

// NFTElement is an element with a counter.
type NFTElement struct {
	Val     NFTValue    `json:"val"`
	Counter *NFTCounter `json:"counter,omitempty"`
}

// NFTCounter is a counter.
type NFTCounter struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// nftObject is an NFTValue that is neither a string nor a number nor a list.
type nftObject NFTValue

// MarshalJSON writes the value in the form of nft(8).
func (v NFTValue) MarshalJSON() ([]byte, error) {
	switch {
	case v.Number != nil:
		return strconv.AppendUint(nil, *v.Number, 10), nil
	case v.Pair != nil:
		return json.Marshal(v.Pair)
	case v.Text != "":
		return json.Marshal(v.Text)
	}
	return json.Marshal(nftObject(v))
}

// UnmarshalJSON reads the output of MarshalJSON.
func (v *NFTValue) UnmarshalJSON(b []byte) error {
	*v = NFTValue{}
	switch b[0] {
	case '"':
		return json.Unmarshal(b, &v.Text)
	case '[':
		return json.Unmarshal(b, &v.Pair)
	case '{':
		return json.Unmarshal(b, (*nftObject)(v))
	}
	return json.Unmarshal(b, &v.Number)
}

// String returns the value as nft(8) writes it as text.
func (v NFTValue) String() string {
	join := func(list []NFTValue, with string) string {
		var texts []string
		for _, e := range list {
			texts = append(texts, e.String())
		}
		return strings.Join(texts, with)
	}
	switch {
	case v.Number != nil:
		return strconv.FormatUint(*v.Number, 10)
	case v.Pair != nil:
		return join(v.Pair, " : ")
	case v.Concat != nil:
		return join(v.Concat, " . ")
	case v.Range != nil:
		return join(v.Range, "-")
	case v.Prefix != nil:
		return v.Prefix.Addr + "/" + strconv.Itoa(v.Prefix.Len)
	case v.Goto != nil:
		return "goto " + v.Goto.Target
	case v.Elem != nil && v.Elem.Counter != nil:
		c := v.Elem.Counter
		return v.Elem.Val.String() + " counter packets " + strconv.FormatUint(c.Packets, 10) + " bytes " + strconv.FormatUint(c.Bytes, 10)
	case v.Elem != nil:
		return v.Elem.Val.String()
	}
	return v.Text
}
