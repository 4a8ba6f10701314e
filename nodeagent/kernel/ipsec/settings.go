package ipsec

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const settingsFile = "strongswan.conf"

// ports are charon's UDP ports.
type ports struct {
	ike int
	nat int // IKE, and ESP in UDP
}

// header is the first line of the settings. settingsPorts parses the ports from it.
const header = "# charon of hawser, ports "

// settings is strongswan.conf(5). It contains no secret, and ignores the configuration of the
// host's strongSwan. Charon's routes go to the main table. They lead to charon's own device and
// disappear with it. Traffic uses the routes in our own table.
const settings = `charon {
  load = %s
  port = %d
  port_nat_t = %d
  routing_table = 0
  process_route = no
  install_virtual_ip = no
  # An answer that is missing is asked for again after 0.5, 0.75, 1.1 and 1.7 s.
  retransmit_timeout = 0.5
  retransmit_base = 1.5
  retransmit_tries = 4
  half_open_timeout = 10
  # Packets under the keys before are taken for so long.
  delete_rekeyed_delay = 5
  cert_cache = no
  filelog {
    own {
      path = charon.log
      append = yes
      flush_line = yes
      time_format = %%Y-%%m-%%dT%%H:%%M:%%S
      default = 0
      cfg = -1
    }
  }
  plugins {
    vici {
      socket = unix://charon.vici
    }
  }
}
charon-systemd {
  journal {
    default = -1
  }
}
`

// plugins returns the plugins that charon loads. Without kernel-libipsec, the kernel does ESP.
func plugins(kernel bool) string {
	all := []string{"random", "nonce", "openssl", "kdf", "pkcs8", "pkcs1", "pubkey", "pem"}
	if !kernel {
		all = append(all, "kernel-libipsec")
	}
	return strings.Join(append(all, "kernel-netlink", "socket-default", "vici"), " ")
}

// Files returns the paths of charon and of its plugins on this host, without their libraries:
// the files that an image needs.
func Files() ([]string, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	files := []string{program}
	for name := range strings.FieldsSeq(plugins(false)) {
		file, err := pluginFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// pluginFile returns the path of a plugin on Debian, or on Fedora and SUSE.
func pluginFile(name string) (string, error) {
	for _, dir := range []string{"/usr/lib/ipsec/plugins", "/usr/lib64/strongswan/plugins", "/usr/lib/strongswan/plugins", "/usr/lib64/ipsec/plugins"} {
		path := filepath.Join(dir, "libstrongswan-"+name+".so")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("strongSwan's plugin %s is not installed (Debian: packages strongswan-swanctl, libstrongswan-standard-plugins and libcharon-extra-plugins)", name)
}

// configure writes the settings.
func (c *Charon) configure(p ports) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fmt.Errorf("create directory of charon: %w", err)
	}
	text := fmt.Sprintf("%s%d %d\n"+settings, header, p.ike, p.nat, plugins(c.InKernel()), p.ike, p.nat)
	if err := os.WriteFile(c.path(settingsFile), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write settings of charon: %w", err)
	}
	return nil
}

// settingsPorts returns the ports of our own charon from the settings that it was started with;
// zero if absent.
func (c *Charon) settingsPorts() ports {
	file, err := os.Open(c.path(settingsFile))
	if err != nil {
		return ports{}
	}
	defer file.Close()
	line, _ := bufio.NewReader(file).ReadString('\n')
	ike, nat, found := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, header)), " ")
	if !strings.HasPrefix(line, header) || !found {
		return ports{}
	}
	var p ports
	p.ike, _ = strconv.Atoi(ike)
	p.nat, _ = strconv.Atoi(nat)
	return p
}
