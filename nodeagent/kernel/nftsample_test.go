package kernel

import (
	"strings"

	"hawser.dev/hawser/nodeagent/desired"
)

// nftSample has elements in every set, of both families: set, key and value.
const nftSample = `
services4 243.0.0.1 . tcp . 80 | pick_many4
services4 243.0.0.1 . udp . 53 | pick_many_client4
services4 243.0.0.2 . sctp . 7 | pick_one4
services6 fd00:43::1 . tcp . 80 | pick_many6
services6 fd00:43::1 . udp . 53 | pick_many_client6
slots4 243.0.0.1 . tcp . 80 . 0 | 242.2.0.5 . 80
slots4 243.0.0.1 . tcp . 80 . 63 | 242.2.0.6 . 8080
slots6 fd00:43::1 . tcp . 80 . 1023 | fd00:42::5 . 80
icmp_echo4 243.0.0.1 | 242.2.0.5
icmp_echo6 fd00:43::1 | fd00:42::5
owners4 242.2.0.9 | 10.7.1.9
owners6 fd00:42::9 | fd00:7::9
unmapped4 242.4.0.0/16 | 10.7.0.0/16
unmapped4 242.5.0.0/24 | 10.8.3.0/24
unmapped6 fd00:42:4::/48 | fd00:7:7::/48
egress4 10.7.1.9 | 242.2.0.9
egress6 fd00:7::9 | fd00:42::9
mapped4 10.7.0.0/16 | 242.4.0.0/16
mapped4 10.9.0.1 | 242.9.0.1
mapped6 fd00:7:7::/48 | fd00:42:4::/48
shared4 0 | 242.1.0.1
shared4 63 | 242.1.0.8
shared6 17 | fd00:42::1
reverse4 10.7.1.9 . tcp . 8080 | 242.2.0.5 . 80
reverse6 fd00:7::9 . udp . 8080 | fd00:42::5 . 80
ambiguous4 10.7.1.9 . tcp . 8081
ambiguous6 fd00:7::9 . udp . 8081
keep_source4 10.8.0.0/24
keep_source4 10.8.1.0/24
keep_source4 10.8.2.7
keep_source4 10.8.2.8
keep_source6 fd00:8::/64
direct4 0.0.0.0/8
direct4 255.0.0.0/8
direct6 ::/1
direct6 ff00::/8
remote4 0.0.0.0/0
remote6 ::/0
networks4 10.9.4.0/24
networks6 fd00:9:4::/64
connected4 10.9.4.0/24 . eth1
connected4 10.9.4.0/24 . enp0s31f6.1234x
connected4 10.9.5.7 . docker0
connected6 fd00:9:4::/64 . eth1
podblocks4 242.4.0.0/16
podblocks6 fd00:42:4::/48
blocks4 242.1.0.0/24
blocks6 fd00:42:1::/64
pools4 243.0.0.0/16
pools6 fd00:43::/64
restricted4 242.2.0.5
restricted6 fd00:42::5
allowed4 242.1.0.0/24 . 242.2.0.5
allowed4 242.1.0.0/24 . 242.2.0.6
allowed4 242.3.0.7 . 242.2.0.5
allowed6 fd00:42:1::/64 . fd00:42::5
remote_exports4 242.3.0.5 . udp . 53
remote_exports6 fd00:42:3::5 . udp . 53
multi_pod4 242.3.0.5
multi_pod6 fd00:42:3::5
nodes4 192.168.0.11
nodes6 fd00:1::11
senders4 305419896 . eth0 | 1879048193
senders6 305419896 . eth0 | 1879048193
gateway_hops4 172.18.0.2 . eth0
gateway_hops6 fd00:18::2 . eth0
node_hops4 172.18.0.3 . eth0
node_hops6 fd00:18::3 . eth0
external_endpoints4 172.18.0.200 . tcp . 5432
external_endpoints6 fd00:18::200 . tcp . 5432
hairpin4 10.7.1.9 . 10.7.1.9
hairpin6 fd00:7::9 . fd00:7::9
tunnels4 241.0.0.1
tunnels6 fd00:41::1
overlays4 51884
overlays6 51884
sources4in4 192.0.2.1 . 51884 . 10.8.0.0/16
sources4in4 192.0.2.1 . 51884 . 241.0.0.2
sources6in4 192.0.2.1 . 51884 . fd00:8::/48
sources4in6 2001:db8::1 . 51884 . 10.8.0.0/16
sources6in6 2001:db8::1 . 51884 . fd00:8::/48
sources6in6 2001:db8::1 . 51884 . fd00:41::2
sent4 192.0.2.1 . 51884
sent6 2001:db8::1 . 51948
split_horizon4in4 241.0.0.9 . 242.4.0.0/15
split_horizon6in4 241.0.0.9 . fd00:9::/48
split_horizon4in6 fd00:41::9 . 242.4.0.0/15
split_horizon6in6 fd00:41::9 . fd00:9::/48
node_marks4 305419896 | 1879048193
node_marks6 2271560481 | 2130702351
served4 10.7.1.9 . udp . 53
served6 fd00:7::9 . udp . 53
pods4 10.7.0.0/16
pods6 fd00:7::/48
peers4 241.0.0.2
peers6 fd00:41::2
dns4 169.254.73.53
dns6 fd68:6177:7365:72::53
errors4 242.2.0.0/24 . 242.2.0.0/24
errors4 241.0.0.2 . 242.2.0.0/24
errors6 fd00:42:2::/64 . fd00:42:2::/64
self44 192.168.0.11 . 192.168.0.11
self64 192.168.0.11 . fd00:1::11
self46 fd00:1::11 . 192.168.0.11
self66 fd00:1::11 . fd00:1::11
vxlan4 192.168.0.11 . 4803
vxlan6 fd00:1::11 . 4803
siblings4 192.168.0.11
siblings6 fd00:1::11
notrack4 242.4.0.0/15
notrack6 fd00:9::/48 |`

func nftSampleElements() []desired.Element {
	return nftParse(strings.Split(strings.TrimSpace(nftSample), "\n")...)
}

// nftParse reads elements from lines such as "mapped4 10.7.0.0/16 | 242.4.0.0/16".
func nftParse(lines ...string) []desired.Element {
	var elements []desired.Element
	for _, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		id, value, _ := strings.Cut(rest, "|")
		elements = append(elements, desired.Element{
			Set: name[:len(name)-1], Family: int(name[len(name)-1] - '0'),
			ID: strings.TrimSpace(id), Value: strings.TrimSpace(value),
		})
	}
	return elements
}
