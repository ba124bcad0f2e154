# frozen_string_literal: true

module Heddle
  module NetHTTP
    # Checks whether methods are still those that the library shipped. The C code does their work without calling them.
    # If a program has overridden one, the library's own code runs instead, and calls the program's method.
    #
    # The result is a flag for each group of methods. It is computed again when a method is defined on these classes
    # ({Watch}), so that a request only reads flags.
    #
    # @api private
    class PatchDetector
      # By group: the module, its methods, and those of its singleton class. A method of HTTPHeader is looked up on the
      # class that includes HTTPHeader.
      METHODS = {
        io: {
          BufferedIO: [%i[read read_all readuntil readline rbuf_fill rbuf_size rbuf_flush rbuf_consume_all rbuf_consume
            write << write0 writing eof? io read_timeout write_timeout debug_output], []]
        },
        response: {
          HTTPResponse: [%i[initialize read_body_0 inflater read_chunked decode_content],
            %i[read_new read_line read_status_line response_class each_response_header]],
          HTTPHeader: [%i[initialize_http_header add_field set_field append_field_value validate_field_name [] key?
            chunked? content_length content_range range_length], []]
        },
        request: {
          HTTPGenericRequest: [%i[initialize exec write_header send_request_with_body wait_for_continue []=
            update_uri], []],
          HTTPHeader: [%i[initialize_http_header set_field append_field_value validate_field_name [] []=
            each_capitalized capitalize key?], []]
        },
        upload: {
          HTTPGenericRequest: [%i[send_request_with_body_stream], []]
        },
        transport: {
          HTTP: [%i[begin_transport proxy_uri connect timeouted_connect proxy? conn_address], %i[start new]]
        },
        naming: {
          HTTP: [%i[addr_port address port use_ssl?], %i[http_default_port https_default_port]]
        },
        wrapping: {
          BufferedIO: [%i[initialize], []]
        },
        initializer: {
          HTTP: [%i[initialize], %i[default_port]]
        }
      }.freeze

      # The module that aws-sdk prepends only calls super, unless a thread-local variable sets the size of the pieces;
      # the C code reads that variable.
      CALLS_SUPER = {send_request_with_body_stream: "Seahorse::Client::NetHttp::Patches::RequestPatches"}.freeze

      SOCKETS = %i[TCPSocket Socket UNIXSocket].freeze
      METHODS_OF_SOCKETS = %i[read_nonblock write_nonblock wait_readable wait_writable to_io eof?].freeze
      private_constant :CALLS_SUPER, :SOCKETS, :METHODS_OF_SOCKETS

      # Extends the classes, and calls watchers when one of their methods or modules changes.
      module Watch
        # Removing a method ends a stub of RSpec's.
        HOOKS = %i[method_added method_removed singleton_method_added singleton_method_removed prepend include extend]
          .freeze
        private_constant :HOOKS

        # The hooks are made from Strings, because other Ractors could not run a block of this Ractor.
        HOOKS.each do |hook|
          module_eval("def #{hook}(*) = super.tap { Watch.changed(self) }", __FILE__, __LINE__)
          private hook if Module.private_method_defined?(hook)
        end

        @watchers = {}

        class << self
          def add(watched, &watcher)
            [watched, watched.singleton_class].each do |place| # a program may prepend to the singleton class, too
              place.extend(self) unless self === place
              (@watchers[place] ||= []) << watcher
            end
          end

          def changed(watched)
            @watchers[watched]&.each(&:call)
          rescue Ractor::IsolationError
            nil # another Ractor has defined a class of its own
          end
        end
      end

      # @param places [Array<String>] files or folders
      # @return [Boolean] whether one of the modules has the method, in C or in one of these places
      def self.from?(method, owners, *places)
        file = method.source_location&.first
        owners.include?(method.owner) && (file.nil? || file.start_with?("<internal:", *places))
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
          named = modules.keys.map { |name| module_named(name) } # the first includes the others, and may override them
          singleton = named.first.singleton_class
          modules.values.flat_map(&:first).all? { |method| unpatched?(named.first, named, method) } &&
            modules.values.flat_map(&:last).all? { |method| unpatched?(singleton, [singleton], method) }
        end.tap do |groups|
          groups[:io] &&= sockets?
          groups[:transport] &&= finds_proxies?
          groups[:wrapping] &&= @space::BufferedIO.method(:new).owner.equal?(Class)
        end
      end

      # Calls the block whenever a flag of a group, or one of these classes, may have changed.
      def watch(classes, &changed)
        modules = METHODS.values.flat_map(&:keys).map { |name| module_named(name) }
        (modules + classes + sockets + uris).uniq.each { |mod| Watch.add(mod, &changed) }
      end

      private

      def module_named(name)
        (name == :HTTP) ? @http : @space.const_get(name)
      end

      # If Heddle has replaced the method, this checks the saved original: Ruby calls methods that a program puts in
      # front of ours anyway.
      def unpatched?(mod, owners, name)
        return true unless mod.method_defined?(name) || mod.private_method_defined?(name)

        replaced = MethodReplacement.kept(name)
        method = mod.instance_method(mod.private_method_defined?(replaced) ? replaced : name)
        method = method.super_method while method && CALLS_SUPER[name]&.==(method.owner.name)
        !!method && PatchDetector.from?(method, owners, *@folders)
      end

      # The classes themselves and those above them.
      def sockets
        classes = SOCKETS.map { |name| Object.const_get(name) }
        classes.flat_map { |klass| klass.ancestors.take_while { |mod| !mod.equal?(Object) }.grep(Class) }.uniq
      end

      # The library calls these methods on a socket. io/wait, which has some of them, is loaded later, if at all.
      def sockets?
        SOCKETS.product(METHODS_OF_SOCKETS).all? do |name, method|
          klass = Object.const_get(name)
          next true unless klass.method_defined?(method)

          PatchDetector.from?(klass.instance_method(method), sockets, Connect.socket_library)
        end
      end

      # The classes of URIs that the library asks for a proxy: Ruby's own, or those of RubyGems' copy if it has one.
      def uris
        names = @space.name.sub(/Net\z/, "URI").split("::")
        copy = names.reduce(Object) { |mod, name| mod.const_get(name, false) if mod&.const_defined?(name, false) }
        uri = copy || ::URI
        [uri::Generic, uri::HTTP]
      end

      def finds_proxies?
        generic, http = uris
        PatchDetector.from?(http.instance_method(:find_proxy), uris, Object.const_source_location(generic.name).first)
      end
    end
    private_constant :PatchDetector
  end
end
