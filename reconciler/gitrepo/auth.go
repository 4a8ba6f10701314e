package gitrepo

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/plumbing/transport/ssh"
)

// Auth has the credentials for the remote repositories of one host. Its files are read at every
// use, so that an operator can rotate a token in place.
type Auth struct {
	// Host is the host or host:port of the only server that receives the credentials.
	// Repositories and redirects can refer to other servers. Empty = none.
	Host           string
	Username       string // HTTPS; with a token most servers accept any name
	Password       string // HTTPS password or token
	PasswordFile   string // file with the password; it has precedence over Password
	SSHKeyFile     string // private key; empty = use the SSH agent
	SSHKnownHosts  string // file; empty = the files of the user and the system
	SSHKeyPassword string // of an encrypted key
}

// HostOf returns the host of a repository address in the format of Auth.Host; empty for a path.
func HostOf(address string) string {
	ep, err := transport.NewEndpoint(address)
	if err != nil || ep.Protocol == "file" {
		return ""
	}
	return hostPort(ep)
}

// hostPort returns the host of an address, with the port unless it is the protocol's default.
func hostPort(ep *transport.Endpoint) string {
	host := strings.ToLower(ep.Host)
	defaults := map[string]int{"https": 443, "http": 80, "ssh": 22}
	if ep.Port == 0 || ep.Port == defaults[ep.Protocol] {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(ep.Port))
}

// method returns the credentials for an address; nil = use the credentials of the URL, if any. It
// refuses to send a password over http.
func (a Auth) method(ep *transport.Endpoint) (transport.AuthMethod, error) {
	matchesHost := a.Host != "" && strings.EqualFold(a.Host, hostPort(ep))
	switch ep.Protocol {
	case "http", "https":
		password := a.Password
		if matchesHost && a.PasswordFile != "" {
			raw, err := os.ReadFile(a.PasswordFile)
			if err != nil {
				return nil, fmt.Errorf("read git token: %w", err)
			}
			password = strings.TrimSpace(string(raw))
		}
		if !matchesHost || password == "" && a.Username == "" {
			return nil, nil
		}
		if ep.Protocol == "http" {
			return nil, fmt.Errorf("the token for %s is not sent over http, where others can read it: use an https address", a.Host)
		}
		username := a.Username
		if username == "" {
			username = "git"
		}
		return &http.BasicAuth{Username: username, Password: password}, nil
	case "ssh":
		if a.SSHKeyFile != "" && !matchesHost {
			host := cmp.Or(a.Host, "no host")
			return nil, fmt.Errorf("SSH key %s is for %s, not %s: to use it there, set HAWSER_GIT_HOST=%[3]s", a.SSHKeyFile, host, hostPort(ep))
		}
		if a.SSHKeyFile == "" {
			if os.Getenv("SSH_AUTH_SOCK") == "" {
				return nil, errors.New("no SSH agent is running (SSH_AUTH_SOCK is not set): start one with ssh-agent, " +
					"or name a private key with hawser reconcile --ssh-key")
			}
			return nil, nil
		}
		user := ep.User
		if user == "" {
			user = "git"
		}
		keys, err := ssh.NewPublicKeysFromFile(user, a.SSHKeyFile, a.SSHKeyPassword)
		if err != nil {
			return nil, fmt.Errorf("read SSH key %s: %w", a.SSHKeyFile, err)
		}
		var files []string
		if a.SSHKnownHosts != "" {
			files = []string{a.SSHKnownHosts}
		}
		keys.HostKeyCallback, err = ssh.NewKnownHostsCallback(files...)
		if err != nil {
			return nil, fmt.Errorf("read known SSH hosts: %w", err)
		}
		return keys, nil
	default:
		return nil, nil
	}
}

// hostHint returns a suffix for the error of a server that requires credentials. It is empty unless
// the configured password is for another host.
func (a Auth) hostHint(ep *transport.Endpoint, err error) string {
	refused := errors.Is(err, transport.ErrAuthenticationRequired) || errors.Is(err, transport.ErrAuthorizationFailed)
	noPassword := a.Password == "" && a.PasswordFile == ""
	if !refused || noPassword || strings.EqualFold(a.Host, hostPort(ep)) {
		return ""
	}
	if a.Host == "" {
		return fmt.Sprintf(" (no host is configured for the token: to send it to this host, set HAWSER_GIT_HOST=%s)", hostPort(ep))
	}
	return fmt.Sprintf(" (the token is only for %s)", a.Host)
}

// secrets returns the passwords that messages must not contain. Some may be empty.
func (a Auth) secrets(ep *transport.Endpoint, method transport.AuthMethod) []string {
	out := []string{a.Password, ep.Password, a.SSHKeyPassword}
	if basic, ok := method.(*http.BasicAuth); ok {
		out = append(out, basic.Password)
	}
	return out
}
