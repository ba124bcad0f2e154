# frozen_string_literal: true

module Heddle
  module NetHTTP
    # `Net::HTTP.start` with options. Stock asks a new object for the names of all its methods, some three hundred, to find the
    # setters that the options name; here they are known.
    #
    # @api private
    module Starting
      @setters = {}

      class << self
        def define(front)
          front.define_method(:start) do |address, *arguments, &block|
            kept = Aliases.kept(self, :start)
            return kept.bind_call(self, address, *arguments, &block) if kept

            options = Hash.try_convert(arguments.last)
            return super(address, *arguments, &block) unless options && arguments.size <= 6 && Library.fast?(allocate)

            port, *proxy = arguments[0...-1]
            port ||= https_default_port if options[:use_ssl]
            proxy = [:ENV] if proxy.empty?
            http = new(address, port, proxy[0], proxy[1], proxy[2], proxy[3])
            Starting.set(http, options)
            http.start(&block)
          end
        end

        # In the order in which stock comes upon the setters.
        def set(http, options)
          http.ipaddr = options[:ipaddr] if options[:ipaddr]
          options = {verify_mode: OpenSSL::SSL::VERIFY_PEER, **options} if options[:use_ssl]
          setters = setters_of(http, options)
          chosen = options.keys.select { |key| setters.key?(key) }
          chosen.sort_by! { |key| setters[key] } if chosen.size > 1
          chosen.each { |key| http.__send__(:"#{key}=", options[key]) }
        end

        private

        # By named classes only: Net::HTTP.Proxy makes a class each time, which nobody could free.
        def setters_of(http, options)
          klass = http.class
          klass = klass.superclass until klass.name
          known = @setters[klass] ||= find(http)
          return known if options.each_key.all? { |key| !key.is_a?(Symbol) || known.key?(key) == http.respond_to?(:"#{key}=") }

          @setters[klass] = find(http)
        end

        def find(http)
          http.methods.filter_map { |name| name[/\A(\w+)=\z/, 1]&.to_sym }.each_with_index.to_h
        end
      end
    end
    private_constant :Starting
  end
end
