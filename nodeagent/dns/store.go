// Package dns is the agent's name server for the clusterset. Its zones follow the MCS API
// (KEP-1645) and the specification of DNS-based multicluster service discovery, with additional
// names of single clusters. All data is an immutable snapshot that readers use without a lock.
package dns

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/desired"
)

// Store holds the data of the server. The converge engine reads and writes it through the kinds
// Services and Zones; each Apply is one atomic swap.
type Store struct {
	mu      sync.Mutex // of writers
	current atomic.Pointer[snapshot]
}

// snapshot is an immutable state of the data.
type snapshot struct {
	servers    []netip.Addr // of the name server itself; empty if unknown
	zones      []*zone      // longest domain first, so that the first match is the closest
	services   *persistentMap[string, *service]
	namespaces *persistentMap[string, int] // number of services
	reverse    *persistentMap[netip.Addr, []ptrName]
	version    uint64 // of services
}

// ptrName is one name of an address, relative to svc.<domain>.
type ptrName struct {
	service string // key of the service
	name    string // labels before the service's own, such as "g2" or "web-0.g2"
}

// NewStore returns an empty store.
func NewStore() *Store {
	s := &Store{}
	s.current.Store(&snapshot{
		services:   newTable[string, *service](),
		namespaces: newTable[string, int](),
		reverse:    newTable[netip.Addr, []ptrName](),
	})
	return s
}

// SetServerAddrs sets the addresses of the name server's own name ns.dns.<domain>.
func (s *Store) SetServerAddrs(servers []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *s.current.Load()
	next.servers = nil
	for _, server := range servers {
		next.servers = append(next.servers, server.Addr().Unmap())
	}
	s.current.Store(&next)
}

// Services returns the converge kind of the exported services.
func (s *Store) Services() ServiceKind { return ServiceKind{store: s} }

// Zones returns the converge kind of the zones.
func (s *Store) Zones() ZoneKind { return ZoneKind{store: s} }

// ServiceKind reads and writes the services of a Store.
type ServiceKind struct{ store *Store }

// Name returns "dns service".
func (ServiceKind) Name() string { return "dns service" }

// Version returns the number of the latest Apply: only Apply changes the services.
func (k ServiceKind) Version(context.Context) (string, error) {
	return strconv.FormatUint(k.store.current.Load().version, 10), nil
}

// Observe returns the services of the server.
func (k ServiceKind) Observe(context.Context) ([]desired.Service, error) {
	var out []desired.Service
	for _, service := range k.store.current.Load().services.all {
		out = append(out, service.spec)
	}
	return out, nil
}

// Apply makes the changes in one swap, at a cost in proportion to their number.
func (k ServiceKind) Apply(_ context.Context, changes []diff.Change[desired.Service]) error {
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	have := k.store.current.Load()
	next := *have
	e := edits{have.services.edit(), have.namespaces.edit(), have.reverse.edit()}
	for _, change := range changes {
		if change.Op == diff.Delete {
			e.remove(indexKey(change.Have))
			continue
		}
		e.remove(indexKey(change.Want))
		e.add(newService(change.Want))
	}
	next.services, next.namespaces, next.reverse = e.services.persistentMap, e.namespaces.persistentMap, e.reverse.persistentMap
	next.version++
	k.store.current.Store(&next)
	return nil
}

// indexKey returns the key of a service for queries: in lower case, because names are compared
// without case (RFC 4343).
func indexKey(s desired.Service) string { return strings.ToLower(s.Name + "." + s.Namespace) }

type edits struct {
	services   *mapEdit[string, *service]
	namespaces *mapEdit[string, int]
	reverse    *mapEdit[netip.Addr, []ptrName]
}

func (e edits) add(s *service) {
	e.services.set(s.key, s)
	count, _ := e.namespaces.get(s.namespace)
	e.namespaces.set(s.namespace, count+1)
	for addr, name := range s.addrs {
		owners, _ := e.reverse.get(addr)
		owners = append(slices.Clone(owners), ptrName{service: s.key, name: name})
		slices.SortFunc(owners, func(a, b ptrName) int { return strings.Compare(a.service, b.service) })
		e.reverse.set(addr, owners)
	}
}

func (e edits) remove(key string) {
	s, known := e.services.get(key)
	if !known {
		return
	}
	e.services.remove(key)
	if count, _ := e.namespaces.get(s.namespace); count > 1 {
		e.namespaces.set(s.namespace, count-1)
	} else {
		e.namespaces.remove(s.namespace)
	}
	for addr := range s.addrs {
		owners, _ := e.reverse.get(addr)
		owners = slices.DeleteFunc(slices.Clone(owners), func(o ptrName) bool { return o.service == key })
		if len(owners) > 0 {
			e.reverse.set(addr, owners)
		} else {
			e.reverse.remove(addr)
		}
	}
}

// ZoneKind reads and writes the zones of a Store.
type ZoneKind struct{ store *Store }

// Name returns "dns zone".
func (ZoneKind) Name() string { return "dns zone" }

// Observe returns the zones of the server.
func (k ZoneKind) Observe(context.Context) ([]desired.Zone, error) {
	var out []desired.Zone
	for _, z := range k.store.current.Load().zones {
		out = append(out, z.spec)
	}
	return out, nil
}

// Apply makes the changes in one swap.
func (k ZoneKind) Apply(_ context.Context, changes []diff.Change[desired.Zone]) error {
	k.store.mu.Lock()
	defer k.store.mu.Unlock()
	next := *k.store.current.Load()
	next.zones = slices.Clone(next.zones)
	for _, change := range changes {
		next.zones = slices.DeleteFunc(next.zones, func(z *zone) bool { return z.spec.Domain == change.Key })
		if change.Op != diff.Delete {
			seconds := time.Duration(change.Want.TTL).Seconds()
			next.zones = append(next.zones, &zone{
				spec: change.Want,
				name: strings.ToLower(dns.Fqdn(change.Want.Domain)),
				ttl:  uint32(min(max(seconds, 0), 1<<31-1)),
			})
		}
	}
	slices.SortFunc(next.zones, func(a, b *zone) int {
		if len(a.name) != len(b.name) {
			return len(b.name) - len(a.name)
		}
		return strings.Compare(a.name, b.name)
	})
	k.store.current.Store(&next)
	return nil
}
