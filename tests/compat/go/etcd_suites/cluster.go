// Clusters of replicas of the map for etcd's own tests: it stands in place of the file of this name in their package
// `framework/integration`, whose clusters are etcd's servers within the process of the test.
//
// All tests of a program share three replicas, which are processes. Each test begins with no keys and no leases; what
// it has stopped runs again for the next one. What a test asks of its servers that replicas do not have ends it as
// skipped, in words.
package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/testutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/pkg/v3/grpctesting"
	"go.etcd.io/etcd/server/v3/config"
	epb "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	lockpb "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	framecfg "go.etcd.io/etcd/tests/v3/framework/config"
)

const (
	RequestWaitTimeout = 5 * time.Second
	RequestTimeout     = 20 * time.Second

	membersMax = 3
	readyWait  = 90 * time.Second

	// The command that starts a replica, as a list in JSON, without what tells replicas apart.
	commandVariable = "RSM_REPLICA"
	// Folder of the replicas' data and logs.
	folderVariable = "RSM_FOLDER"
)

var (
	ElectionTicks = 10

	TestTLSInfo          transport.TLSInfo
	TestTLSInfoIP        transport.TLSInfo
	TestTLSInfoExpired   transport.TLSInfo
	TestTLSInfoExpiredIP transport.TLSInfo

	DefaultTokenJWT = "jwt"

	replicas     [membersMax]*replica
	replicasLock sync.Mutex
)

// ---- replicas: processes that are there for all tests

// A replica has no goroutine of its own here: tests look for those that are left behind.
type replica struct {
	name    string
	address string
	process *os.Process
}

func (r *replica) start() error {
	if r.process != nil {
		return nil
	}
	var command []string
	if err := json.Unmarshal([]byte(os.Getenv(commandVariable)), &command); err != nil {
		return fmt.Errorf("%s is no command: %w", commandVariable, err)
	}
	folder := os.Getenv(folderVariable)
	_, port, _ := net.SplitHostPort(r.address)
	command = append(command, "--replica-id", r.name, "--data-dir", filepath.Join(folder, r.name), "--etcd-port", port, "--json")
	log, err := os.OpenFile(filepath.Join(folder, r.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reader.Close()
	r.process, err = os.StartProcess(command[0], command, &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{nil, writer, log},
		Dir:   os.Getenv("RSM_TREE"),
	})
	writer.Close()
	if err != nil {
		return err
	}
	reader.SetReadDeadline(time.Now().Add(readyWait))
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		r.kill()
		return fmt.Errorf("replica %s did not become ready: %w", r.name, err)
	}
	var ready struct {
		Address string `json:"etcd_address"`
	}
	if err := json.Unmarshal([]byte(line), &ready); err != nil || ready.Address == "" {
		return fmt.Errorf("replica %s said %q instead of where it is", r.name, line)
	}
	r.address = ready.Address
	return nil
}

func (r *replica) kill() {
	if r.process != nil {
		r.process.Signal(syscall.SIGKILL)
		r.process.Wait()
		r.process = nil
	}
}

// allReplicas returns replicas that run and hold nothing. The first call starts them.
func allReplicas() ([]*replica, error) {
	replicasLock.Lock()
	defer replicasLock.Unlock()
	for number := range replicas {
		if replicas[number] == nil {
			replicas[number] = &replica{name: fmt.Sprintf("m%d", number), address: net.JoinHostPort("127.0.0.1", "0")}
		}
		if err := replicas[number].start(); err != nil {
			return nil, err
		}
	}
	return replicas[:], wipe(replicas[:])
}

// wipe removes all keys and leases, and waits until every replica has seen that.
func wipe(all []*replica) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyWait)
	defer cancel()
	for number, one := range all {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + one.address}, DialTimeout: readyWait, Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		defer client.Close()
		for number == 0 {
			if err = empty(ctx, client); err == nil || ctx.Err() != nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		for err == nil {
			if _, err = client.Get(ctx, "a"); err == nil || ctx.Err() != nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
			err = nil
		}
		if err != nil {
			return fmt.Errorf("replica %s cannot be emptied: %w", one.name, err)
		}
	}
	return nil
}

func empty(ctx context.Context, client *clientv3.Client) error {
	leases, err := client.Leases(ctx)
	if err != nil {
		return err
	}
	for _, lease := range leases.Leases {
		if _, err := client.Revoke(ctx, lease.ID); err != nil {
			return err
		}
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, alarm := range alarms.Alarms {
		if _, err := client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
			return err
		}
	}
	_, err = client.Delete(ctx, "\x00", clientv3.WithFromKey())
	return err
}

// ---- clusters, as tests know them

type ClusterConfig struct {
	Size      int
	PeerTLS   *transport.TLSInfo
	ClientTLS *transport.TLSInfo

	AuthToken string

	QuotaBackendBytes    int64
	BackendBatchInterval time.Duration

	MaxTxnOps       uint
	MaxRequestBytes uint

	SnapshotCount          uint64
	SnapshotCatchUpEntries uint64

	GRPCKeepAliveMinTime        time.Duration
	GRPCKeepAliveInterval       time.Duration
	GRPCKeepAliveTimeout        time.Duration
	GRPCAdditionalServerOptions []grpc.ServerOption

	ClientMaxCallSendMsgSize int
	ClientMaxCallRecvMsgSize int

	UseIP     bool
	UseBridge bool
	UseTCP    bool

	EnableLeaseCheckpoint   bool
	LeaseCheckpointInterval time.Duration
	LeaseCheckpointPersist  bool

	WatchProgressNotifyInterval time.Duration
	MaxLearners                 int
	DisableStrictReconfigCheck  bool
	CorruptCheckTime            time.Duration
	Metrics                     string
}

// lacking returns what of a configuration replicas cannot be given, or nothing.
func (cfg *ClusterConfig) lacking() string {
	switch {
	case cfg.Size > membersMax:
		return fmt.Sprintf("a cluster of more than %d", membersMax)
	case cfg.ClientTLS != nil || cfg.PeerTLS != nil:
		return "certificates of the suite's own"
	case cfg.AuthToken != "":
		return "users and roles that are commands"
	case cfg.QuotaBackendBytes != 0:
		return "a quota of the file"
	case cfg.MaxTxnOps != 0 || cfg.MaxRequestBytes != 0:
		return "other limits of requests"
	case cfg.WatchProgressNotifyInterval != 0:
		return "another interval of progress"
	case cfg.MaxLearners != 0:
		return "learners"
	case cfg.CorruptCheckTime != 0:
		return "checks of other members' files"
	}
	return ""
}

type Cluster struct {
	Cfg     *ClusterConfig
	Members []*Member

	mu sync.Mutex
}

func NewCluster(t testutil.TB, cfg *ClusterConfig) *Cluster {
	t.Helper()
	if what := cfg.lacking(); what != "" {
		lacks(t, what)
	}
	all, err := allReplicas()
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Cfg: cfg}
	for number, one := range all[:cfg.Size] {
		m := &Member{
			replica:                  one,
			tb:                       t,
			clusterSize:              cfg.Size,
			UseBridge:                cfg.UseBridge,
			MemberNumber:             number,
			ClientMaxCallSendMsgSize: cfg.ClientMaxCallSendMsgSize,
			ClientMaxCallRecvMsgSize: cfg.ClientMaxCallRecvMsgSize,
			GRPCURL:                  "http://" + one.address,
		}
		m.Name = one.name
		m.TickMs, m.ElectionTicks = 10, ElectionTicks
		m.Logger = zaptest.NewLogger(t).Named(one.name)
		if cfg.UseBridge {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			m.GRPCBridge = newBridge(dialer{one}, listener)
			m.GRPCURL = "http://" + listener.Addr().String()
		}
		address, _ := url.Parse(m.GRPCURL)
		m.ClientURLs = types.URLs{*address}
		c.Members = append(c.Members, m)
	}
	for _, m := range c.Members {
		if m.Client, err = NewClientV3(m); err != nil {
			t.Fatal(err)
		}
		m.ServerClient = m.Client
		m.Server = &Server{m}
	}
	return c
}

// lacks ends a test that asks for something that replicas do not have.
func lacks(t testutil.TB, what string) {
	t.Helper()
	t.Skip("replicas lack: " + what)
}

func (c *Cluster) Client(i int) *clientv3.Client { return c.Members[i].Client }

func (c *Cluster) RandClient() *clientv3.Client { return c.Client(rand.Intn(len(c.Members))) }

func (c *Cluster) TakeClient(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Members[i].Client = nil
}

func (c *Cluster) Endpoints() []string {
	var endpoints []string
	for _, m := range c.Members {
		endpoints = append(endpoints, m.GRPCURL)
	}
	return endpoints
}

func (c *Cluster) Terminate(testutil.TB) {
	for _, m := range c.Members {
		if m.Client != nil {
			m.Client.Close()
		}
		m.Close()
	}
}

func (c *Cluster) ClusterClient(tb testing.TB, opts ...framecfg.ClientOption) (*clientv3.Client, error) {
	cfg := &clientv3.Config{Endpoints: c.Endpoints(), DialTimeout: 5 * time.Second}
	for _, opt := range opts {
		opt(cfg)
	}
	client, err := clientv3.New(*cfg)
	if err == nil {
		tb.Cleanup(func() { client.Close() })
	}
	return client, err
}

func (c *Cluster) NewClientV3(i int) (*clientv3.Client, error) { return NewClientV3(c.Members[i]) }

func (c *Cluster) WaitLeader(tb testing.TB) int { return c.WaitMembersForLeader(tb, c.Members) }

// WaitMembersForLeader waits until the members that run name one of them as the leader; it returns its place.
func (c *Cluster) WaitMembersForLeader(tb testing.TB, members []*Member) int {
	tb.Helper()
	for end := time.Now().Add(readyWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		leaders := map[uint64]int{}
		running := 0
		for _, m := range members {
			if m.replica.process == nil {
				continue
			}
			running++
			if status := m.status(); status != nil {
				leaders[status.Leader]++
			}
		}
		for leader, votes := range leaders {
			for place, m := range members {
				if votes == running && m.replica.process != nil && uint64(m.ID()) == leader {
					return place
				}
			}
			if votes == running && leader != 0 && len(members) < membersMax {
				lacks(tb, "the choice of a leader: it is none of the test's members")
			}
		}
	}
	tb.Fatal("there is no leader")
	return -1
}

func (c *Cluster) AddMember(t testutil.TB) types.URLs {
	lacks(t, "changes of members")
	return nil
}

func (c *Cluster) MustNewMember(t testutil.TB) *Member {
	lacks(t, "changes of members")
	return nil
}

func (c *Cluster) RemoveMember(t testutil.TB, _ *clientv3.Client, _ uint64) error {
	lacks(t, "changes of members")
	return nil
}

func (c *Cluster) InitializeMemberWithResponse(t testutil.TB, _ *Member, _ *clientv3.MemberAddResponse) {
	lacks(t, "changes of members")
}

func (c *Cluster) AddAndLaunchLearnerMember(t testutil.TB) { lacks(t, "learners") }

func (c *Cluster) GetLearnerMembers() ([]*pb.Member, error) { return nil, nil }

// ---- members

type Member struct {
	config.ServerConfig
	MemberNumber             int
	GRPCURL                  string
	GRPCBridge               Bridge
	Client                   *clientv3.Client
	ServerClient             *clientv3.Client
	ClientTLSInfo            *transport.TLSInfo
	ClientMaxCallSendMsgSize int
	ClientMaxCallRecvMsgSize int
	UseBridge                bool
	Server                   *Server

	replica     *replica
	tb          testutil.TB
	clusterSize int
	id          types.ID
}

// A Server tells what tests ask of etcd's server of a member.
type Server struct {
	member *Member
}

func (s *Server) MemberID() types.ID { return s.member.ID() }

type dialer struct {
	replica *replica
}

func (d dialer) Dial() (net.Conn, error) { return net.Dial("tcp", d.replica.address) }

func (m *Member) status() *clientv3.StatusResponse {
	ctx, cancel := context.WithTimeout(context.Background(), RequestWaitTimeout)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + m.replica.address}, Logger: zap.NewNop()})
	if err != nil {
		return nil
	}
	defer client.Close()
	status, err := client.Status(ctx, "http://"+m.replica.address)
	if err != nil {
		return nil
	}
	return status
}

func (m *Member) ID() types.ID {
	for end := time.Now().Add(readyWait); m.id == 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if status := m.status(); status != nil {
			m.id = types.ID(status.Header.MemberId)
		}
	}
	return m.id
}

// Stop ends the process of the replica as etcd's tests end their server: at once. Where a test has less members than
// there are replicas, all of them end: nobody else is there for it.
func (m *Member) Stop(testutil.TB) { m.each((*replica).kill) }

func (m *Member) each(do func(*replica)) {
	do(m.replica)
	if m.clusterSize == 1 {
		for _, one := range replicas {
			if one != m.replica {
				do(one)
			}
		}
	}
}

func (m *Member) Restart(t testutil.TB) error {
	var err error
	m.each(func(one *replica) {
		if failure := one.start(); failure != nil {
			err = failure
		}
	})
	if err != nil {
		t.Error(err)
	}
	return err
}

func (m *Member) Launch() error { return m.Restart(m.tb) }

func (m *Member) Terminate(t testutil.TB) {
	m.Stop(t)
	m.Close()
}

func (m *Member) Close() {
	if m.GRPCBridge != nil {
		m.GRPCBridge.Close()
		m.GRPCBridge = nil
	}
}

func (m *Member) Bridge() Bridge { return m.GRPCBridge }

func (m *Member) URL() string { return m.GRPCURL }

func (m *Member) GRPCPortNumber() string {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(m.GRPCURL, "http://"))
	return port
}

func (m *Member) ElectionTimeout() time.Duration {
	return time.Duration(m.ElectionTicks*int(m.TickMs)) * time.Millisecond
}

func (m *Member) WaitOK(t testutil.TB) { WaitClientV3(t, m.Client) }

func (m *Member) WaitStarted(t testutil.TB) {
	for end := time.Now().Add(readyWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if m.status() != nil {
			return
		}
	}
	t.Fatal("the replica has not started")
}

// ReadyNotify returns what is closed once the replica serves: it does when `start` returns.
func (m *Member) ReadyNotify() <-chan struct{} {
	ready := make(chan struct{})
	close(ready)
	return ready
}

func (m *Member) StopNotify() <-chan struct{} {
	lacks(m.tb, "a word when a server has ended")
	return nil
}

func (m *Member) Metric(name string, _ ...string) (string, error) {
	lacks(m.tb, "etcd's figure "+name)
	return "", nil
}

func (m *Member) RecordedRequests() []grpctesting.RequestInfo {
	lacks(m.tb, "a record of requests")
	return nil
}

func (m *Member) InjectPartition(t testutil.TB, _ ...*Member) {
	lacks(t, "connections between members that could be cut")
}

func (m *Member) RecoverPartition(testutil.TB, ...*Member) {}

func (m *Member) Pause() {
	if m.replica.process != nil {
		m.replica.process.Signal(syscall.SIGSTOP)
	}
}

func (m *Member) Resume() {
	if m.replica.process != nil {
		m.replica.process.Signal(syscall.SIGCONT)
	}
}

func WaitClientV3(t testutil.TB, kv clientv3.KV) { WaitClientV3WithKey(t, kv, "/") }

func WaitClientV3WithKey(t testutil.TB, kv clientv3.KV, key string) {
	var err error
	for end := time.Now().Add(readyWait); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), RequestTimeout)
		_, err = kv.Get(ctx, key)
		cancel()
		if err == nil {
			return
		}
	}
	t.Fatalf("no answer to a read: %v", err)
}

// CheckLeaderTransition waits until the leader is another one than it was.
func CheckLeaderTransition(m *Member, was uint64) uint64 {
	for {
		if status := m.status(); status != nil && status.Leader != 0 && status.Leader != was {
			return status.Leader
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ---- clients

func NewClientV3(m *Member) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:          []string{m.GRPCURL},
		DialTimeout:        5 * time.Second,
		MaxCallSendMsgSize: m.ClientMaxCallSendMsgSize,
		MaxCallRecvMsgSize: m.ClientMaxCallRecvMsgSize,
		Logger:             m.Logger.Named("client"),
	})
}

func WithAuth(name, password string) framecfg.ClientOption {
	return func(c any) {
		cfg := c.(*clientv3.Config)
		cfg.Username, cfg.Password = name, password
	}
}

func WithAuthToken(token string) framecfg.ClientOption {
	return func(c any) { c.(*clientv3.Config).Token = token }
}

func WithEndpoints(endpoints []string) framecfg.ClientOption {
	return func(c any) { c.(*clientv3.Config).Endpoints = endpoints }
}

func WithDialTimeout(timeout time.Duration) framecfg.ClientOption {
	return func(c any) { c.(*clientv3.Config).DialTimeout = timeout }
}

func makeClients(t testutil.TB, c *Cluster, made *[]*clientv3.Client, choose func() int) func() *clientv3.Client {
	var lock sync.Mutex
	*made = nil
	return func() *clientv3.Client {
		client, err := c.NewClientV3(choose())
		if err != nil {
			t.Fatal(err)
		}
		lock.Lock()
		defer lock.Unlock()
		*made = append(*made, client)
		return client
	}
}

func MakeSingleNodeClients(t testutil.TB, c *Cluster, made *[]*clientv3.Client) func() *clientv3.Client {
	return makeClients(t, c, made, func() int { return 0 })
}

func MakeMultiNodeClients(t testutil.TB, c *Cluster, made *[]*clientv3.Client) func() *clientv3.Client {
	return makeClients(t, c, made, func() int { return rand.Intn(len(c.Members)) })
}

func CloseClients(t testutil.TB, made []*clientv3.Client) {
	for _, client := range made {
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

type GRPCAPI struct {
	Cluster     pb.ClusterClient
	KV          pb.KVClient
	Lease       pb.LeaseClient
	Watch       pb.WatchClient
	Maintenance pb.MaintenanceClient
	Auth        pb.AuthClient
	Lock        lockpb.LockClient
	Election    epb.ElectionClient
}
