# frozen_string_literal: true

require "etc"

module Heddle
  module DB
    module PostgreSQL
      # Combines a connection string, keywords, a service file, the environment and a password file. An explicit value
      # takes precedence over the service's, and that over the environment's, as in libpq ("Environment
      # Variables", "The Connection Service File" and "The Password File" of PostgreSQL's manual).
      #
      # @api private
      module Settings
        PORT = 5432
        ENVIRONMENT = {
          "PGHOST" => :host, "PGHOSTADDR" => :hostaddr, "PGPORT" => :port, "PGUSER" => :user,
          "PGPASSWORD" => :password, "PGDATABASE" => :database,
          "PGSSLMODE" => :sslmode, "PGSSLNEGOTIATION" => :sslnegotiation, "PGSSLROOTCERT" => :sslrootcert,
          "PGSSLCERT" => :sslcert, "PGSSLKEY" => :sslkey, "PGCHANNELBINDING" => :channel_binding,
          "PGAPPNAME" => :application_name, "PGOPTIONS" => :options, "PGPASSFILE" => :passfile,
          "PGCONNECT_TIMEOUT" => :connect_timeout, "PGTARGETSESSIONATTRS" => :target_session_attrs,
          "PGLOADBALANCEHOSTS" => :load_balance_hosts, "PGREQUIREAUTH" => :require_auth,
          "PGGSSENCMODE" => :gssencmode
        }.freeze
        FOLDERS = %w[/var/run/postgresql /tmp].freeze
        private_constant :ENVIRONMENT, :FOLDERS

        class << self
          # @param url [String, URI] see {Conninfo}
          # @param options [Hash{Symbol => Object}] as given to {DB.connect}
          # @return [Hash{Symbol => Object}] checked; +:servers+ are the hosts to try, in their order, and +:sslmode+ is
          #   always there
          # @raise [ArgumentError]
          def of(url, options)
            given = from(options.compact)
            given = Conninfo.options(url.to_s).merge(given)
            given = service(given).merge(given)
            given = environment(given).merge(given) { |_, _, explicit| explicit }
            given[:connect_timeout] = nil if given[:connect_timeout] == "0" # libpq's word for no limit
            checked = Options.checked(given.except(:service, :servicefile), OptionChecks::ALL)
            complete(checked)
          end

          private

          # The keywords of libpq stand for ours.
          def from(options)
            options = options.transform_keys(&:to_sym)
            options[:database] = options.delete(:dbname) if options.key?(:dbname)
            options
          end

          # A program that says tls: or socket: does not mean what the environment says of the other.
          def environment(given)
            found = ENVIRONMENT.filter_map { |name, option| [option, ENV[name]] unless ENV[name].to_s.empty? }.to_h
            found.delete(:sslmode) if given.key?(:tls)
            found.delete(:hostaddr) if given.key?(:host) || given.key?(:socket)
            found
          end

          # The section of a service file.
          def service(given)
            name = given[:service] || ENV["PGSERVICE"]
            return {} if name.to_s.empty?

            files = service_files(given)
            file = files.find { |path| File.readable?(path) && section(path, name) }
            raise ArgumentError, "there is no service #{name.inspect} in #{files.join(" or ")}" unless file

            pairs = section(file, name).filter_map { |line| line.split("=", 2).map(&:strip) if line.include?("=") }
            pairs.to_h { |key, value| [(key == "dbname") ? :database : key.to_sym, value] }
          end

          def service_files(given)
            own = given[:servicefile] || ENV["PGSERVICEFILE"]
            system = ENV["PGSYSCONFDIR"]
            [own || home(".pg_service.conf"), (File.join(system, "pg_service.conf") if system),
              "/etc/postgresql-common/pg_service.conf"].compact
          end

          # The lines of the section of that name; nil if the file has no such section.
          def section(path, name)
            lines = File.readlines(path, chomp: true).map(&:strip).reject do |line|
              line.empty? || line.start_with?("#")
            end
            from = lines.index("[#{name}]") or return
            lines.drop(from + 1).take_while { |line| !line.start_with?("[") }
          end

          def home(name) = File.join(ENV["HOME"] || Etc.getpwuid&.dir || "/", name)

          def complete(settings)
            settings[:user] ||= Etc.getpwuid&.name || ENV["USER"].to_s
            settings[:database] ||= settings[:user]
            settings[:application_name] ||= settings[:fallback_application_name]
            settings[:sslmode] = sslmode(settings)
            settings[:servers] = servers(settings)
            settings.except(:host, :hostaddr, :port, :socket, :password, :passfile, :fallback_application_name,
              :client_encoding, :gssencmode)
          end

          # tls: is sslmode: in one word. Who names certificates wants them used.
          def sslmode(settings)
            system = settings[:sslrootcert] == "system"
            certificates = settings[:sslrootcert] || settings[:sslcert]
            mode = settings[:sslmode] || ((settings[:tls] || certificates) ? :"verify-full" : :disable)
            if system && mode != :"verify-full"
              raise ArgumentError, "sslrootcert: system trusts all public authorities, so that sslmode: must be " \
                "verify-full, not #{mode}: anybody may have a certificate for another name"
            elsif settings[:sslnegotiation] == :direct && %i[disable allow prefer].include?(mode)
              raise ArgumentError, "sslnegotiation: direct begins with TLS: sslmode: must be require, verify-ca or " \
                "verify-full, not #{mode}"
            end
            mode
          end

          # Each host with its port and its password.
          def servers(settings)
            addresses = settings[:hostaddr] unless settings[:socket]
            hosts = settings[:socket] ? [settings[:socket]] : hosts(settings[:host] || addresses)
            if addresses && addresses.size != hosts.size
              raise ArgumentError, "hostaddr: has #{addresses.size} addresses for #{hosts.size} hosts: give one each"
            end

            ports = settings[:port] || [PORT]
            unless ports.size == 1 || ports.size == hosts.size
              raise ArgumentError,
                "port: has #{ports.size} ports for #{hosts.size} hosts: give one for all, or one each"
            end

            hosts.each_with_index.map do |host, index|
              port = (ports.size == 1) ? ports.first : ports[index]
              secret = settings[:password] || password(settings, host, port || PORT)
              Server.new(host, port || PORT, secret, addresses && addresses[index])
            end
          end

          def hosts(hosts)
            return hosts.map { |host| host.empty? ? default_host : host } if hosts && !hosts.empty?

            [default_host]
          end

          # Where libpq of Debian and of PostgreSQL itself look for a UNIX socket; else this machine.
          def default_host
            FOLDERS.find { |folder| Dir.exist?(folder) && !Dir[File.join(folder, ".s.PGSQL.*")].empty? } || "localhost"
          end

          # From the password file: host:port:database:user:password, where * stands for anything and \ goes before a
          # colon of the value's own.
          def password(settings, host, port)
            path = settings[:passfile] || home(".pgpass")
            return unless readable?(path)

            name = host.start_with?("/") ? "localhost" : host
            wanted = [[name, host], [port.to_s], [settings[:database]], [settings[:user]]]
            File.foreach(path, chomp: true) do |line|
              next if line.start_with?("#")

              fields = line.scan(/\G((?:[^:\\]|\\.)*)(?::|\z)/).flatten.map { |field| field.gsub(/\\(.)/, '\1') }
              next if fields.size < 5
              if wanted.each_with_index.all? { |values, i| fields[i] == "*" || values.include?(fields[i]) }
                return fields[4]
              end
            end
            nil
          end

          def readable?(path)
            stat = File.stat(path)
            return false unless stat.file? && File.readable?(path)
            return true if stat.mode & 0o077 == 0

            warn "heddle: the password file #{path} was not used: others may read it (chmod 0600)"
            false
          rescue SystemCallError
            false
          end
        end
      end

      # A host to try: a name, an address, or the folder or path of a UNIX socket. With +address+ it is not looked up:
      # the name is that of the certificate.
      #
      # @api private
      Server = Struct.new(:host, :port, :password, :address) do
        # @return [Boolean] whether it refused protocol 3.2, and took 3.0
        attr_accessor :old

        # @return [Stream]
        def open
          path = socket
          path ? Stream.unix(path) : Stream.connect(address || host, port)
        end

        # @return [Array<Server>] one for each address of the name
        # @raise [SocketError]
        def each_address
          return [self] if socket || address

          found = Addrinfo.getaddrinfo(host, port, nil, :STREAM).map(&:ip_address).uniq
          (found == [host]) ? [self] : found.map { |ip| self.class.new(host, port, password, ip) }
        end

        # @return [String, nil] the path of the UNIX socket
        def socket
          return unless host.start_with?("/")

          whole = File.basename(host).start_with?(".s.PGSQL.") || File.socket?(host)
          whole ? host : File.join(host, ".s.PGSQL.#{port}")
        end

        # @return [String] for messages
        def to_s
          text = socket || (host.include?(":") ? "[#{host}]:#{port}" : "#{host}:#{port}")
          (address && address != host) ? "#{text} (#{address})" : text
        end

        # Without the password.
        def inspect = "#<Heddle::DB::PostgreSQL::Server #{self}>"
      end
      private_constant :Settings, :Server
    end
  end
end
