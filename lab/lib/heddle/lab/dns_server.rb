# frozen_string_literal: true

require "ipaddr"
require "socket"

module Heddle
  module Lab
    # A DNS server over UDP for tests and benches, which can be slow, be silent or fail for chosen names (RFC 1035, as
    # far as the resolvers of C libraries use it).
    #
    # A zone is a Hash of names. Each has `"a"` and `"aaaa"`, Arrays of addresses (left out: the name has none of that
    # kind), `"delay"`, seconds before an answer, or `"a_delay"` and `"aaaa_delay"` for one kind, and `"failure"`:
    # `"silent"` for no answer at all, `"servfail"` for an error of the server. For look-ups by address, an IPv4 address
    # is the name and `"ptr"` what it is called. Names that are not in the zone do not exist.
    class DNSServer
      KINDS = {1 => "a", 12 => "ptr", 28 => "aaaa"}.freeze
      NO_ERROR = 0
      SERVER_FAILURE = 2
      NAME_ERROR = 3
      SECONDS_VALID = 60

      # @param log [IO, nil] gets a line for each question: the kind and the name
      def initialize(zone, address: "127.0.0.1", port: 53, log: nil)
        @zone = zone.transform_keys(&:downcase)
        @log = log
        @socket = UDPSocket.new
        @socket.bind(address, port)
      end

      def port
        @socket.addr[1]
      end

      # Answers until the socket is closed, each question in a thread of its own, since a slow answer must not delay
      # others.
      def run
        loop do
          question, sender = @socket.recvfrom(512)
          Thread.new { answer(question, sender) }
        end
      rescue IOError
        nil
      end

      def close
        @socket.close
      end

      private

      def answer(question, sender)
        name, kind, size = parse(question)
        @log&.syswrite("#{kind} #{name}\n")
        entry = @zone[subject(name)]
        sleep(entry["#{kind}_delay"] || entry["delay"] || 0) if entry
        return if entry && entry["failure"] == "silent"

        @socket.send(reply(question, size, entry, kind), 0, sender[3], sender[1])
      rescue IOError, SystemCallError
        nil # the socket is closed, or the client is gone
      end

      # The name in lower case, the kind, and the number of bytes of header and question.
      def parse(question)
        labels = []
        place = 12
        while (length = question.getbyte(place)) && length.positive?
          labels << question.byteslice(place + 1, length)
          place += length + 1
        end
        [labels.join(".").downcase, KINDS[question.byteslice(place + 1, 2).unpack1("n")], place + 5]
      end

      # A question by address has the address backwards: 1.2.0.192.in-addr.arpa.
      def subject(name)
        return name unless name.end_with?(".in-addr.arpa")

        name.delete_suffix(".in-addr.arpa").split(".").reverse.join(".")
      end

      def reply(question, size, entry, kind)
        code = if entry.nil? then NAME_ERROR
        elsif entry["failure"] == "servfail" then SERVER_FAILURE
        else NO_ERROR
        end
        records = (code == NO_ERROR) ? records_of(entry, kind) : []
        header = [question.unpack1("n"), 0x8180 | code, 1, records.size, 0, 0].pack("n6")
        header + question.byteslice(12, size - 12) + records.join
      end

      def records_of(entry, kind)
        Array(entry[kind]).map do |value|
          data = if kind == "ptr"
            value.split(".").map { |label| [label.bytesize, label].pack("Ca*") }.join + "\0"
          else
            IPAddr.new(value).hton
          end
          # 0xc00c: the name of the question, which starts at byte 12.
          [0xc00c, KINDS.key(kind), 1, SECONDS_VALID, data.bytesize].pack("nnnNn") + data
        end
      end
    end
  end
end
