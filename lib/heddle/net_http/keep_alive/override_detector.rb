# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # Whether a Net::HTTP makes connections as the library does. A program that has replaced one of these methods may
      # do anything to a new connection: send a preface on it, or take it from elsewhere.
      class OverrideDetector
        METHODS = %i[connect connect_without_heddle on_connect do_finish do_finish_without_heddle timeouted_connect
          ssl_socket_connect conn_address conn_port address port proxy? proxy_address proxy_port use_ssl?].freeze
        # Libraries whose overrides only observe and call super, matched by file name.
        WATCHERS = %r{/(?:httplog/adapters|webmock/http_lib_adapters|opentelemetry/instrumentation/net|ddtrace/contrib|
          datadog/(?:tracing|appsec)/contrib|sentry/net|new_relic/agent/instrumentation)/}x
        OURS = File.expand_path("..", __dir__)
        private_constant :METHODS, :WATCHERS, :OURS

        def initialize = clear

        # @param http [Net::HTTP]
        # @param library [Class] its Net::HTTP
        # @return [Boolean]
        def plain?(http, library)
          if Library.exact?(http, library)
            known = @known
            known.fetch(library) { known[library] = judge(library, library) }
          elsif Library.singular?(http)
            METHODS.all? { |name| unpatched?(http, name, library) }
          else
            judge(http.class, library)
          end
        end

        # A method of the library, or of a socket, has changed. A thread that is judging a class meanwhile writes its
        # result into the old table, which nobody reads any more.
        def clear = @known = KeepAlive.plain = {}.compare_by_identity

        private

        def judge(klass, library)
          plain = METHODS.all? do |name|
            next true unless klass.method_defined?(name) || klass.private_method_defined?(name)

            every?(klass.instance_method(name), library)
          end
          plain && Connect.unpatched?(library)
        end

        def unpatched?(http, name, library)
          http.respond_to?(name, true) ? every?(http.method(name), library) : true
        end

        # Of all methods that a call may reach.
        def every?(method, library)
          while method
            file = method.source_location&.first.to_s
            return false unless file.start_with?(OURS, *folders(library)) || file.match?(WATCHERS)

            method = method.super_method
          end
          true
        end

        # net-protocol may be a gem of its own.
        def folders(library)
          (@folders ||= {})[library] ||= [[library, :HTTPVersion], [Connect.spaces.fetch(library), :Protocol]]
            .map { |place, name| File.join(File.dirname(place.const_source_location(name).first), "") }
        end
      end
      private_constant :OverrideDetector
    end
  end
end
