# frozen_string_literal: true

require_relative "../core/after_fork"
require_relative "connect_filter/guard"
require_relative "connect_filter/public_addresses"

module Heddle
  # Asks filters before an address is connected to, see {Heddle.connect_filter}.
  module ConnectFilter
    # Allows only addresses that the whole Internet can reach: a filter for URLs that come from strangers.
    #
    # Refuses loopback, private, link-local, shared, multicast, documentation, benchmarking and reserved addresses,
    # IPv4-mapped and IPv4-compatible IPv6 addresses, NAT64 (64:ff9b::/96 and 64:ff9b:1::/48), 6to4 and Teredo (which
    # all can hide a private IPv4 address), addresses with a scope (`%eth0`), the addresses of the metadata services of
    # clouds, and UNIX sockets. Other Ractors may call it, too.
    #
    # @example
    #   Heddle.connect_filter(Heddle::ConnectFilter::PUBLIC) { Net::HTTP.get(URI(url_of_a_stranger)) }
    PUBLIC = Ractor.make_shareable(PublicAddresses.new)

    # In a child that a task forks, the code no longer runs in a task: the thread gets the task's filters.
    AfterFork.register(-> { nested }) { |filters| keep(filters) }

    class << self
      # Whether the filters in force allow a connection to be used again.
      #
      # @api private
      # @param address [Addrinfo] the peer of the connection
      # @param host [String] what the program asks to connect to
      def allows?(address, host) = refusal(address, host).nil?

      # Asks the filters in force, innermost first.
      #
      # @api private
      # @param address [Addrinfo]
      # @param host [String]
      # @param seconds [Numeric, nil] for all filters together
      # @return [ConnectRefused, nil] nil if all allow the address in time
      def refusal(address, host, seconds = nil)
        filters = in_force
        return if filters.empty?
        return first_refusal(filters, address, host) unless seconds

        begin
          Heddle.deadline(seconds) { first_refusal(filters, address, host) }
        rescue DeadlineExceeded
          raise if Heddle.remaining&.zero? # a deadline around the connect

          refused(address, host, "it took longer than the connect's own time limit")
        end
      end

      # Runs the block, in a thread of its own, say, under filters that {.nested} returned elsewhere.
      #
      # @api private
      def within_all(filters, &block)
        filters.inject(block) { |inner, filter| -> { within(filter, &inner) } }.call
      end

      private

      def first_refusal(filters, address, host)
        filters.each do |filter|
          refusal = ask(filter, address, host)
          return refusal if refusal
        end
        nil
      end

      # A filter's own connects are not filtered: it would call itself for ever.
      def ask(filter, address, host)
        return refused(address, host, "this Ractor may not call it: see Ractor.make_shareable") if filter.nil?

        refused(address, host) unless within(false) { filter.call(address, host) }
      rescue Timeout::Error # of a limit around the connect, as a rule
        raise
      rescue => error
        raise if time_over?(error)

        caused(refused(address, host, "#{error.class}: #{error.message}"), error)
      end

      def refused(address, host, why = nil)
        where = address.inspect_sockaddr
        where += " (#{host})" unless [where, Guard.text(address)].include?(host)
        ConnectRefused.new("the filter of Heddle.connect_filter does not allow a connect to #{where}" \
          "#{": #{why}" if why}", address, host)
      end

      # The exception with its cause, which only `raise` sets.
      def caused(exception, cause)
        raise exception, cause: cause
      rescue ConnectRefused => exception
        exception
      end
    end
  end

  class << self
    # Asks a filter before each connect. The filter is called with the address, and with the host that the program
    # asked to connect to. If it returns false or nil, or raises a StandardError, the address is refused. Of several
    # addresses of a host the allowed ones are used; if there are none, {ConnectRefused} is raised. The address that
    # was checked is the one that is connected to: there is no second look-up, whose answer could differ.
    #
    # With a filter as an argument and a block, the filter binds the block, and the tasks that {Heddle.spawn} and pools
    # start in it, to their end. It does not bind fibers of `Fiber.schedule` and threads. Of nested filters all must
    # allow the address, and the filter of the process as well.
    #
    # With a block or a filter alone, sets the filter of the process, which binds all threads and tasks; nil removes it.
    # In another Ractor a filter refuses every address unless it is shareable (`Ractor.make_shareable`).
    #
    # Covers TCPSocket, UNIXSocket, Socket (`tcp`, `unix`, `connect`, `connect_nonblock`), UDPSocket#connect, and so
    # Net::HTTP, {Stream}, {Memcached}, {DB} and everything else that is built on them. Does not cover C libraries with
    # sockets of their own, see the page on limits.
    #
    # A filter may wait. It runs in the task or thread that connects, inside of its deadlines, and each time out
    # (Timeout::Error) leaves it unchanged. It is not asked for what it connects to itself.
    #
    # @example for the whole process
    #   Heddle.connect_filter { |address, host| address.ip? && !address.ipv4_private? }
    # @example for a block
    #   Heddle.connect_filter(Heddle::ConnectFilter::PUBLIC) { URI.open(url) }
    # @overload connect_filter
    #   @return [#call, nil] the filter of the process
    # @overload connect_filter(filter)
    #   @param filter [#call, nil] of the process from now on
    #   @return [#call, nil] the filter
    # @overload connect_filter
    #   @yieldparam address [Addrinfo] with the port; of a UNIX socket, with its path
    #   @yieldparam host [String] the name or the address that the program gave; a UNIX socket's path
    #   @yieldreturn [Boolean] whether to connect
    #   @return [Proc] the filter
    # @overload connect_filter(filter)
    #   @param filter [#call] of the block
    #   @yield with the filter in force
    #   @return [Object] the block's value
    # @raise [TypeError] if the filter does not respond to `call`
    def connect_filter(*filters, &block)
      raise ArgumentError, "Heddle.connect_filter takes one filter at most, not #{filters.size}" if filters.size > 1
      return ConnectFilter.process if filters.empty? && !block

      filter = filters.empty? ? block : filters.first
      nested = block && !filters.empty?
      usable = filter.respond_to?(:call) || (filter.nil? && !nested)
      raise TypeError, "a filter needs the method call(address, host); #{filter.inspect} has none" unless usable

      nested ? ConnectFilter.within(filter, &block) : ConnectFilter.process = filter
    end
  end
end
