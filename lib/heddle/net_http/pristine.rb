# frozen_string_literal: true

module Heddle
  module NetHTTP
    # Whether the methods whose work is done in C are still those that the library shipped. Where a program has overridden one,
    # by reopening the class or by a module in front of it, its own is called, by stock.
    #
    # @api private
    class Pristine
      # Module, the methods that are asked about, and those of its singleton, by what depends on them.
      METHODS = {
        io: {
          BufferedIO: [%i[read read_all readuntil readline rbuf_fill rbuf_consume write << write0 writing eof? io
            read_timeout write_timeout debug_output], []]
        },
        response: {
          HTTPResponse: [%i[initialize read_body_0 inflater read_chunked decode_content], %i[read_new read_status_line response_class each_response_header]],
          HTTPHeader: [%i[initialize_http_header add_field set_field append_field_value [] key? chunked? content_length content_range range_length], []]
        },
        request: {
          HTTPGenericRequest: [%i[initialize exec write_header send_request_with_body wait_for_continue []= update_uri], []],
          HTTPHeader: [%i[initialize_http_header set_field [] []= each_capitalized capitalize key?], []]
        },
        upload: {
          HTTPGenericRequest: [%i[send_request_with_body_stream], []]
        },
        transport: {
          HTTP: [%i[begin_transport proxy_uri connect timeouted_connect proxy? conn_address], %i[start new]]
        },
        making: {
          HTTP: [%i[initialize], %i[default_port]]
        }
      }.freeze

      # Modules of others in front, whose methods only hand on what we ask about: aws-sdk's does, unless a thread says how large
      # pieces are to be, which is looked at when it comes to that.
      HANDING_ON = {send_request_with_body_stream: "Seahorse::Client::NetHttp::Patches::RequestPatches"}.freeze

      # Prepends that log or guard, and stubs, want to be asked.
      SOCKETS = %i[TCPSocket Socket UNIXSocket].freeze
      ASKED_OF_SOCKETS = %i[read_nonblock write_nonblock wait_readable wait_writable to_io eof?].freeze
      private_constant :HANDING_ON, :SOCKETS, :ASKED_OF_SOCKETS

      # In front of nothing: only tells when something of the class has changed.
      module Watch
        def method_added(name)
          super
          Watch.changed(self, self, name)
        end

        def singleton_method_added(name)
          super
          Watch.changed(self, singleton_class, name)
        end

        # As a stub does that is over.
        def method_removed(name)
          super
          Watch.changed(self, self, name)
        end

        def singleton_method_removed(name)
          super
          Watch.changed(self, singleton_class, name)
        end

        def prepend(*) = super.tap { Watch.changed(self) }

        def include(*) = super.tap { Watch.changed(self) }

        def extend(*) = super.tap { Watch.changed(self) }

        @watchers = {}

        class << self
          def add(watched, &watcher)
            [watched, watched.singleton_class].each do |place| # prepend is called on the latter, too
              place.extend(self) unless self === place
              (@watchers[place] ||= []) << watcher
            end
          end

          # @param place [Module] where a method of that name was made, or removed
          def changed(watched, place = nil, name = nil)
            @watchers[watched]&.each { |watcher| watcher.call(place, name) }
          rescue Ractor::IsolationError
            nil # what another Ractor defines on its own classes is not for ours
          end
        end
      end
      private_constant :Watch

      # @return [Boolean] whether the module is one of those that we put in front
      def self.ours?(mod)
        mod.instance_variable_defined?(:@heddle_net_http)
      end

      def initialize(http, space)
        @http = http
        @space = space
        @folders = [File.dirname(space.const_source_location(:HTTPGenericRequest).first, 2),
          File.dirname(space.const_source_location(:BufferedIO).first)].uniq.map { |folder| "#{folder}/" }
      end

      # @return [Hash{Symbol => Boolean}] by group
      def groups
        METHODS.transform_values do |modules|
          named = modules.keys.map { |name| module_named(name) } # the first is what includes the others, and may override them
          singleton = named.first.singleton_class
          modules.values.flat_map(&:first).all? { |method| shipped?(named.first, named, method) } &&
            modules.values.flat_map(&:last).all? { |method| shipped?(singleton, [singleton], method) }
        end.tap do |groups|
          groups[:io] &&= sockets?
          groups[:transport] &&= finds_proxies?
        end
      end

      # Calls the block whenever the answer may have changed, or one of these classes has; where it was by a method that was made or
      # removed, with the module and the name.
      def watch(classes, &changed)
        return if @watching

        @watching = true
        modules = METHODS.values.flat_map(&:keys).map { |name| module_named(name) }
        (modules + classes + sockets + uris).uniq.each { |mod| Watch.add(mod, &changed) }
      end

      private

      def module_named(name)
        (name == :HTTP) ? @http : @space.const_get(name)
      end

      # The classes themselves and those above them.
      def sockets
        SOCKETS.flat_map { |name| Object.const_get(name).ancestors.take_while { |mod| !mod.equal?(Object) }.grep(Class) }.uniq
      end

      # What stock asks of a socket.
      def sockets?
        SOCKETS.product(ASKED_OF_SOCKETS).all? { |name, method| rubys_own?(Object.const_get(name), method, sockets, Connecting.socket_library) }
      end

      # The classes of addresses that are asked for a proxy: Ruby's own, or RubyGems' copy where it has one.
      def uris
        copy = @space.name.sub(/Net\z/, "URI").split("::").reduce(Object) { |mod, name| mod.const_get(name, false) if mod&.const_defined?(name, false) }
        uri = copy || ::URI
        [uri::Generic, uri::HTTP]
      end

      def finds_proxies?
        generic, http = uris
        rubys_own?(http, :find_proxy, uris, Object.const_source_location(generic.name).first)
      end

      # In C, or in that file.
      def rubys_own?(klass, name, owners, library)
        return true unless klass.method_defined?(name) # io/wait comes later, if at all

        method = klass.instance_method(name)
        file = method.source_location&.first
        owners.include?(method.owner) && (file.nil? || file == library || file.start_with?("<internal:"))
      end

      def shipped?(mod, owners, name)
        return true unless mod.method_defined?(name) || mod.private_method_defined?(name)

        method = mod.instance_method(name)
        method = method.super_method while method && (Pristine.ours?(method.owner) || HANDING_ON[name]&.==(method.owner.name))
        return false unless method && owners.include?(method.owner)

        file = method.source_location&.first
        file.nil? || file.start_with?(*@folders)
      end
    end
    private_constant :Pristine
  end
end
