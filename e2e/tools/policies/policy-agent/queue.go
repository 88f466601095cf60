package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Numbers of linux/netfilter/nfnetlink_queue.h, which golang.org/x/sys lacks.
const (
	subsystem      = 3 << 8 // NFNL_SUBSYS_QUEUE
	messagePacket  = subsystem | 0
	messageVerdict = subsystem | 1
	messageConfig  = subsystem | 2

	attributeHeader  = 1  // NFQA_PACKET_HDR
	attributeVerdict = 2  // NFQA_VERDICT_HDR
	attributePayload = 10 // NFQA_PAYLOAD
	configCommand    = 1  // NFQA_CFG_CMD
	configParameters = 2  // NFQA_CFG_PARAMS
	commandBind      = 1  // NFQNL_CFG_CMD_BIND
	copyPacket       = 2  // NFQNL_COPY_PACKET
	copied           = 128

	drop   = 0 // NF_DROP
	accept = 1 // NF_ACCEPT
)

// packet is what NetworkPolicies look at: the header of an IPv4 packet.
type packet struct {
	source, destination net.IP
	protocol            int
	port                int // of the destination; 0 where the protocol has none
}

type queue struct{ socket *nl.NetlinkSocket }

// bindQueue takes queue 0 of this network namespace.
func bindQueue() (*queue, error) {
	socket, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	q := &queue{socket}
	bind := []byte{commandBind, 0, 0, unix.AF_INET}
	parameters := append(binary.BigEndian.AppendUint32(nil, copied), copyPacket)
	return q, errors.Join(
		q.send(messageConfig, nl.NewRtAttr(configCommand, bind)),
		q.send(messageConfig, nl.NewRtAttr(configParameters, parameters)),
	)
}

// serve gives a verdict on each packet; it returns only with an error.
func (q *queue) serve(allows func(packet) bool) error {
	for {
		messages, _, err := q.socket.Receive()
		if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR) {
			continue // The kernel dropped packets that nothing had read yet. Their senders repeat them.
		}
		if err != nil {
			return err
		}
		for _, message := range messages {
			if err := q.judge(message, allows); err != nil {
				return err
			}
		}
	}
}

func (q *queue) judge(message syscall.NetlinkMessage, allows func(packet) bool) error {
	if message.Header.Type != messagePacket {
		return nil
	}
	// The kernel does not pad the last attribute, the packet, and ParseRouteAttr panics without padding.
	padding := make([]byte, -len(message.Data)&3)
	attributes, err := nl.ParseRouteAttr(append(slices.Clip(message.Data), padding...)[nl.SizeofNfgenmsg:])
	if err != nil {
		return err
	}
	var number uint32
	verdict := uint32(drop)
	for _, attribute := range attributes {
		switch attribute.Attr.Type {
		case attributeHeader:
			number = binary.BigEndian.Uint32(attribute.Value)
		case attributePayload:
			if found, err := parse(attribute.Value); err == nil && allows(found) {
				verdict = accept
			}
		}
	}
	header := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, verdict), number)
	return q.send(messageVerdict, nl.NewRtAttr(attributeVerdict, header))
}

func (q *queue) send(kind int, attribute nl.NetlinkRequestData) error {
	request := nl.NewNetlinkRequest(kind, 0)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	request.AddData(attribute)
	return q.socket.Send(request)
}

func parse(header []byte) (packet, error) {
	if len(header) < 20 || header[0]>>4 != 4 {
		return packet{}, fmt.Errorf("not an IPv4 packet")
	}
	found := packet{source: net.IP(header[12:16]), destination: net.IP(header[16:20]), protocol: int(header[9])}
	rest := header[min(len(header), 4*int(header[0]&15)):]
	switch found.protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP:
		if len(rest) < 4 {
			return packet{}, fmt.Errorf("no ports")
		}
		found.port = int(binary.BigEndian.Uint16(rest[2:4]))
	}
	return found, nil
}
