package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/yamlsize"
	"hawser.dev/hawser/schema"
	"hawser.dev/hawser/schema/document"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/syntax"
)

// Read reads a lock file. file is its name in messages. An empty file is an empty lock. A textual
// merge of two branches can leave a key twice, or an address with two owners. Read accepts such
// files: allocate.Check reports the conflicts and allocate.Allocate resolves them.
func Read(file string, raw []byte) (*Lock, diag.List) {
	r := &reader{file: file, lock: New(), tally: diag.Tally{}}
	if len(bytes.TrimSpace(raw)) == 0 {
		return r.lock, nil
	}
	if pos, found := document.ConflictMarker(file, raw); found {
		return r.lock, diag.List{{Severity: diag.Error, Code: "lock-syntax", Pos: pos,
			Summary: "the lock has merge conflict markers",
			Hint:    "remove the lines that begin with <<<<<<<, ======= and >>>>>>> and keep both sides, then run hawser allocate"}}
	}
	if pos, found := yamlsize.Excess(file, raw); found {
		return r.lock, diag.List{{Severity: diag.Error, Code: "lock-syntax", Pos: pos, Summary: "the lock has " + yamlsize.Summary(), Hint: lockHint}}
	}
	var doc yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	err := dec.Decode(&doc)
	for err == nil {
		var second yaml.Node
		if err = dec.Decode(&second); err == nil && !syntax.IsNull(second.Content[0]) {
			r.fail(second.Content[0], "has more than one YAML document")
		}
	}
	if !errors.Is(err, io.EOF) {
		found := document.New(file, raw, nil).SyntaxError(err)
		return r.lock, diag.List{{Severity: diag.Error, Code: "lock-syntax", Pos: found.Pos,
			Summary: "the lock is truncated or was edited by hand: " + found.Summary, Hint: lockHint}}
	}
	if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
		r.readDocument(doc.Content[0])
	}
	return r.lock, append(r.list, r.tally.Overflow()...)
}

type reader struct {
	file      string
	lock      *Lock
	list      diag.List
	tally     diag.Tally
	addrCount int // addresses in all ranges
}

func (r *reader) pos(n *yaml.Node) diag.Pos {
	return diag.Pos{File: r.file, Line: n.Line, Column: n.Column, Width: len(n.Value)}
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	if r.tally[diag.Error]++; r.tally[diag.Error] > diag.MaxFindings {
		return
	}
	r.list = append(r.list, diag.Diagnostic{Severity: diag.Error, Code: "lock-syntax", Pos: r.pos(n),
		Summary: "the lock " + fmt.Sprintf(format, args...),
		Hint:    lockHint})
}

const lockHint = "restore the last good version from git, and run hawser allocate again, which writes the lock"

// eachKey calls do for each key of a mapping.
func (r *reader) eachKey(n *yaml.Node, do func(key, value *yaml.Node)) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n, "needs a mapping here")
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		do(n.Content[i], n.Content[i+1])
	}
}

func (r *reader) readDocument(n *yaml.Node) {
	r.eachKey(n, func(key, value *yaml.Node) {
		switch key.Value {
		case "apiVersion":
			r.checkLiteral(value, schema.APIVersion)
		case "kind":
			r.checkLiteral(value, Kind)
		case "allocated":
			r.eachKey(value, r.readEntry)
		case "released":
			sub := &reader{file: r.file, lock: New(), tally: r.tally}
			sub.eachKey(value, sub.readEntry)
			r.list = append(r.list, sub.list...)
			r.lock.Released = sub.lock
		default:
			r.fail(key, "has the unknown key %s", diag.Quote(key.Value))
		}
	})
}

func (r *reader) checkLiteral(n *yaml.Node, want string) {
	if n.Value != want {
		r.fail(n, "has %s instead of %q", diag.Quote(n.Value), want)
	}
}

// readEntry reads one line: the path of an allocation, as in findings, and its value.
func (r *reader) readEntry(key, value *yaml.Node) {
	top, afterTop := nextSegment(key.Value)
	sub, afterSub := nextSegment(afterTop)
	last, afterLast := nextSegment(afterSub)
	switch {
	case top.key == "clusters" && top.label != "" && sub.key == "gateways" && sub.label != "" && afterSub == "ordinal":
		r.readOrdinal(Claim{Kind: ClaimGateway, Cluster: top.label, Name: sub.label}, key, value)
	case afterLast != "" || top.label == "":
		r.fail(key, "has the unknown key %s", diag.Quote(key.Value))
	case top.key == "clusters" && afterSub == "":
		r.readClusterEntry(top.label, sub, key, value)
	case top.key == "exports" && sub == (segment{key: "vips"}) && afterSub == "":
		r.readAddrs(Claim{Kind: ClaimClusterSetIP, Export: top.label}, key, value)
	case top.key == "exports" && sub.key == "clusters" && sub.label != "" && last == (segment{key: "ips"}):
		r.readAddrs(Claim{Kind: ClaimExport, Export: top.label, Cluster: sub.label}, key, value)
	case top.key == "exports" && sub.key == "clusters" && sub.label != "" && last.key == "hosts" && last.label != "":
		r.readAddrs(Claim{Kind: ClaimHost, Export: top.label, Cluster: sub.label, Name: last.label}, key, value)
	default:
		r.fail(key, "has the unknown key %s", diag.Quote(key.Value))
	}
}

func (r *reader) readClusterEntry(name string, sub segment, key, value *yaml.Node) {
	c := r.lock.Cluster(name)
	switch {
	case sub == segment{key: "blocks"}:
		r.readBlocks(c, fieldpath.Key("clusters", name), value)
	case sub == segment{key: "extensionBlocks"}:
		c.ExtensionBlocks = append(c.ExtensionBlocks, r.readPrefixes(value)...)
	case sub == segment{key: "former"}:
		c.Former = append(c.Former, r.readPrefixes(value)...)
	case sub == segment{key: "egressIPs"}:
		r.readAddrs(Claim{Kind: ClaimEgress, Cluster: name}, key, value)
	case sub.key == "mappings" && sub.label != "":
		r.readMapping(c, sub.label, key, value)
	case sub.key == "gateways" && sub.label != "":
		r.readAddrs(Claim{Kind: ClaimGateway, Cluster: name, Name: sub.label}, key, value)
	case sub.key == "egress" && sub.label != "":
		r.readAddrs(Claim{Kind: ClaimRule, Cluster: name, Name: sub.label}, key, value)
	default:
		r.fail(key, "has the unknown key %s", diag.Quote(key.Value))
	}
}

// segment is one segment of a path: a key, and the label in brackets after the key.
type segment struct{ key, label string }

// nextSegment returns the first segment of a path and the rest. The key of an invalid path is the
// whole path.
func nextSegment(path string) (segment, string) {
	i := strings.IndexAny(path, ".[")
	if i < 0 {
		return segment{key: path}, ""
	}
	s := segment{key: path[:i]}
	rest := path[i:]
	if rest[0] == '[' {
		label, after, ok := strings.Cut(rest[1:], "]")
		if !ok || label == "" {
			return segment{key: path}, ""
		}
		s.label, rest = label, after
	}
	if after, ok := strings.CutPrefix(rest, "."); ok && after != "" {
		return s, after
	}
	if rest != "" {
		return segment{key: path}, ""
	}
	return s, ""
}

// readBlocks reads a cluster's blocks. A merge of two branches can leave a second list with another
// block. The lower block wins, and the other block becomes a conflict.
func (r *reader) readBlocks(c *Cluster, path string, n *yaml.Node) {
	for _, b := range r.readPrefixes(n) {
		i := slices.IndexFunc(c.Blocks, func(h PrefixAllocation) bool { return h.Prefix.Addr().Is4() == b.Prefix.Addr().Is4() })
		if i < 0 {
			c.Blocks = append(c.Blocks, b)
			continue
		}
		keep, drop := c.Blocks[i], b
		if drop.Prefix.Compare(keep.Prefix) < 0 {
			keep, drop = drop, keep
		}
		c.Blocks[i] = keep
		r.duplicateKey(path+".blocks", keep.Pos, drop.Pos, keep.Prefix != drop.Prefix)
	}
	slices.SortFunc(c.Blocks, func(a, b PrefixAllocation) int { return a.Prefix.Addr().BitLen() - b.Prefix.Addr().BitLen() })
}

func (r *reader) readMapping(c *Cluster, pods string, key, value *yaml.Node) {
	from, err := netip.ParsePrefix(pods)
	to := r.readPrefixes(value)
	if err != nil || len(to) != 1 || from.Bits() != to[0].Prefix.Bits() || from != from.Masked() {
		r.fail(key, "has the mapping of %s, which is not one prefix as long", diag.Clip(pods))
		return
	}
	m := PrefixAllocation{Prefix: to[0].Prefix, Pos: r.pos(key)}
	if existing, dup := c.Mappings[from]; dup {
		keep, drop := existing, m
		if drop.Prefix.Compare(keep.Prefix) < 0 {
			keep, drop = drop, keep
		}
		r.duplicateKey(key.Value, keep.Pos, drop.Pos, keep.Prefix != drop.Prefix)
		m = keep
	}
	c.Mappings[from] = m
}

// readAddrs reads the addresses of a claim. If the claim occurs twice, the list with the lower
// first address wins.
func (r *reader) readAddrs(s Claim, key, value *yaml.Node) {
	h := Allocation{Addrs: r.readAddresses(value), Pos: r.pos(key)}
	if existing, dup := r.lock.Addrs[s]; dup {
		keep, drop := existing, h
		if slices.CompareFunc(drop.Addrs, keep.Addrs, netip.Addr.Compare) < 0 {
			keep, drop = drop, keep
		}
		r.duplicateKey(s.Path(), keep.Pos, drop.Pos, !slices.Equal(keep.Addrs, drop.Addrs))
		h = keep
	}
	r.lock.Addrs[s] = h
}

// readOrdinal reads the ordinal of a gateway. If it occurs twice, the lower one wins.
func (r *reader) readOrdinal(s Claim, key, value *yaml.Node) {
	h := OrdinalAllocation{Pos: r.pos(key)}
	if value.Kind != yaml.ScalarNode || value.Tag != "!!int" || value.Decode(&h.Ordinal) != nil || h.Ordinal < 0 || h.Ordinal >= fabric.MaxGateways {
		r.fail(value, "has %s instead of an ordinal from 0 to %d", diag.Quote(value.Value), fabric.MaxGateways-1)
		return
	}
	if existing, dup := r.lock.Ordinals[s]; dup {
		keep, drop := existing, h
		if drop.Ordinal < keep.Ordinal {
			keep, drop = drop, keep
		}
		r.duplicateKey(s.OrdinalPath(), keep.Pos, drop.Pos, keep.Ordinal != drop.Ordinal)
		h = keep
	}
	r.lock.Ordinals[s] = h
}

// duplicateKey adds a conflict for a key that occurs twice in the file.
func (r *reader) duplicateKey(path string, keep, drop diag.Pos, differ bool) {
	what := "with the same value"
	if differ {
		what = "with different values: the published one wins, otherwise the lower one"
	}
	r.lock.Conflicts = append(r.lock.Conflicts, diag.Diagnostic{Severity: diag.Warning, Code: "lock-conflict", Path: path,
		Pos: drop, Related: []diag.Related{{Path: path, Pos: keep}}, Summary: "occurs twice in the lock, " + what})
}

// scalars returns the items of a list.
func (r *reader) scalars(n *yaml.Node) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		r.fail(n, "needs a list here")
		return nil
	}
	return n.Content
}

func (r *reader) readPrefixes(n *yaml.Node) []PrefixAllocation {
	var out []PrefixAllocation
	for _, item := range r.scalars(n) {
		p, err := netip.ParsePrefix(item.Value)
		if err != nil || p != p.Masked() {
			r.fail(item, "has %s instead of a prefix without host bits", diag.Quote(item.Value))
			continue
		}
		out = append(out, PrefixAllocation{Prefix: p, Pos: r.pos(item)})
	}
	return out
}

// maxRange is the maximum number of addresses of one claim, and maxAddrs of the lock. A range of 20
// bytes of text can need 100 kB of memory.
const (
	maxRange = 4096
	maxAddrs = 1 << 20
)

// readAddresses reads a list of addresses and of ranges first-last.
func (r *reader) readAddresses(n *yaml.Node) []netip.Addr {
	items := r.scalars(n)
	if r.addrCount > maxAddrs {
		r.fail(n, "has more than %d addresses in total", maxAddrs)
		return nil
	}
	out := make([]netip.Addr, 0, len(items))
	for _, item := range items {
		first, last, isRange := strings.Cut(item.Value, "-")
		if !isRange {
			last = first
		}
		lo, err := netip.ParseAddr(first)
		hi, err2 := netip.ParseAddr(last)
		if errors.Join(err, err2) != nil || lo.BitLen() != hi.BitLen() || hi.Less(lo) {
			r.fail(item, "has %s instead of an address or a range of addresses", diag.Quote(item.Value))
			continue
		}
		for a := lo; len(out) <= maxRange; a = a.Next() {
			out = append(out, a)
			if a == hi {
				break
			}
		}
		if len(out) > maxRange {
			r.fail(item, "has the range %s of more than %d addresses", diag.Quote(item.Value), maxRange)
			return nil
		}
	}
	r.addrCount += len(out)
	return out
}
